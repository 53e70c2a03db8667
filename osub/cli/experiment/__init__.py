"""``osub experiment``: published experiments again."""
