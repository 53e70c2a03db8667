"""What Slurm says, and what the site and its users want: configuration, policy, jobs, nodes."""
