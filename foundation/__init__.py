"""The base of every package: errors, units, run records, Slurm access, and trust checks on files."""
