"""Broadcast-synchronised gang scheduling of jobs that share cores under Slurm."""
