"""``osub replay``: a trace on a real Slurm."""
