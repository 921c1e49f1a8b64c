"""Datasets as files of other programs."""
