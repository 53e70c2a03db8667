"""The life of a job: it starts, goes at a speed, saves, changes size, comes back, ends."""
