"""Charts of runs, each a function from rows to a figure; ``chart_style`` has what all share."""
