"""Metrics as rows of tables, one column a run, for the terminal and for pages."""
