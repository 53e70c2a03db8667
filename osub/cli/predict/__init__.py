"""``osub predict``: which applications may share a core."""
