"""Synthetic runs that obey the laws of the collectives: nothing here is measured."""
