"""Where the files of a dataset or release are: a folder, a zip file, a URL."""
