"""``osub doctor``: what this host offers, and how a live Slurm is set up."""
