"""``osub evict``: which running jobs to kill or to checkpoint, of a table or on a live Slurm."""
