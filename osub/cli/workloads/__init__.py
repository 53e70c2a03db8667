"""``osub workloads``: what jobs need before they can keep their times."""
