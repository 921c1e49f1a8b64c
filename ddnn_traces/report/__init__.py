"""The report: a page of chapters, one a paper. What it says is computed from the rows that its figures show."""
