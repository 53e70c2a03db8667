"""What a program that Slurm has started knows and says of itself: place, clock, cores, report."""
