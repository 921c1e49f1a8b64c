"""Anonymisation: values that identify a host, a place or a time are replaced by values that do not.

Which columns hold such values is in schemas/ (`identifies`). One secret, the key, decides all choices, so that releases
made with the same key agree: key -> identifiers -> mapping.Anonymiser, which the tables and the captures go through.
"""
