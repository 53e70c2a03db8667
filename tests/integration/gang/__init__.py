"""Jobs that share cores under a real Slurm and gangd: one test or more for each known pitfall."""
