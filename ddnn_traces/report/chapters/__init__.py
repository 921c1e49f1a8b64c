"""The chapters, one module each; a function a section: headline, charts and tables from the rows of named queries."""
