"""Checks of a release, also of a copy from others: files, tables, database and descriptions, also against each other.

    examined       the release as a check gets it, and a line of the output
    files          names, checksums, bag, release.json, listed files, version
    tables         sizes, columns, rows and order, encoding, runs, data checks
    footer         bytes of a Parquet file that belong to no column
    captures       the captures, ingested again
    database       traces.duckdb
    explorer       explore.html
    descriptions   each description by the validator of its format
    agreement      the descriptions against release.json
    running        all of them in order
    apart          the process that they run in, with limits

A release is untrusted: none of it is used before it was checked, no link is followed, nothing is fetched.
"""
