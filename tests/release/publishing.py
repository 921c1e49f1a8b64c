"""What the tests publish with."""

#: What every release needs; the date, so that a test at midnight does not fail.
ABOUT = {"title": "Two runs", "licence": "CC-BY-4.0", "creators": ["Ada Example"], "date": "2026-01-31"}
