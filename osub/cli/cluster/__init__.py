"""``osub cluster``: test clusters on this host, embedded or in containers."""
