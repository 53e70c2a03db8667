"""``osub top``: a live view of the gang scheduler."""
