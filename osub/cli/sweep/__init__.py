"""``osub sweep``: many settings, each run once; ``osub sweep tune`` searches."""
