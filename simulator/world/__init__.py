"""What a run is given: jobs, with their lives and sizes; nodes, and when they fail."""
