"""The report: one HTML page of one or several runs."""
