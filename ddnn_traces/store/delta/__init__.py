"""Datasets on an object store, committed by Delta Lake (docs/stores.md).

    URL/dataset.json                                    the marker, as of a folder
    URL/TABLE/_delta_log/...                            one Delta table for each table, partitioned by run_id
    URL/TABLE/run_id=RUN/part-0-UNIQUE.parquet          our Parquet file; no other ever has its name
    URL/files/NAME-BLAKE3.json                          versions of inputs.json, sources.json, checksums.json

A commit ends with that of the table runs. Its metadata name the versions of the other tables and of the files: a reader
opens these, and so sees the dataset of one commit, whatever other writers do.
"""
