"""``osub gang``: control the gang scheduler while it runs."""
