"""Slurm's two schedulers, with its own parameters."""
