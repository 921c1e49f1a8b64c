"""The figures, one module a paper: functions from the frame of a query to a chart. What they show is decided in SQL."""
