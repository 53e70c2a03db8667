"""A trace of one system made into a trace for a smaller one."""
