"""How jobs, nodes and settings are read out of what Slurm prints; no word of a user is believed."""
