"""Anonymisation: what tells who, where or when becomes something that does not.

Which columns do is in schemas/ (`identifies`). One secret, the key, decides all choices, so that releases made with the
same key agree: key -> addresses, labels, ports, times -> mapping.Mapping, which the tables and the captures go through.
"""
