"""``osub simulate``: a trace on a simulated cluster."""
