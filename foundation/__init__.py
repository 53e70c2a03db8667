"""What every room stands on: errors, units, records of runs, Slurm, and whose files are believed."""
