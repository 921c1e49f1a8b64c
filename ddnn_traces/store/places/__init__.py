"""Where a dataset's or a release's files are: a folder, a zip file, a URL.

url.py      what is a URL
path.py     names of files that others wrote
place.py    what is known of a place: the Parquet files of each table
folder.py, zipped.py, remote.py    each kind of place
finding.py  which kind a path or URL is
"""
