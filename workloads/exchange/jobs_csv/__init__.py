"""The ``jobs.csv`` that Batsim writes and evalys reads."""
