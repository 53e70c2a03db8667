"""What became of the jobs: Slurm's answers and the jobs' own stamps as rows of the RUN."""
