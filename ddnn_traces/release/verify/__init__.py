"""Whether a release is what it says: every check, each in its own module, over the same release.

    result.py      a line of what was found
    examined.py    the release, as checks look at it; untrusted.py: how its files are read
    files, told, tables, data, versions, database    the release itself
    croissant, data_package, ro_crate, datacite, citation, card, licence    each description by its validator
    agreement      descriptions against each other
    running.py     all of them in order

A release comes from others: nothing in it is trusted before it was looked at, no link is followed, nothing is fetched.
"""
