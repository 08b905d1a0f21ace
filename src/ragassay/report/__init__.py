"""Reports of a run folder: the terminal's table, report.md and report.html; no model needed."""
