"""Which job is on which core: slots, neighbours, owners of nodes, and Slurm's rows."""
