"""``osub predict``: which applications may share a core, and how much memory a job will use."""
