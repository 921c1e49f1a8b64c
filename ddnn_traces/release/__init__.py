"""Releases: a dataset as others can find, trust, cite and load it.

    dataset -> anonymised tables -> facts -> descriptions -> checksums -> leak scan -> RELEASE
    RELEASE -> verify, push, open

A release is a folder (layout.py names its files) that is itself a dataset: `ddnn_traces.open` takes it. All its
descriptions are made from one object, `facts.Release`, which is kept in it as release.json.
"""
