"""The report: a page of chapters, one a paper. Its sentences are computed from the rows that its figures show."""
