"""Which job is on which core: slots, co-located jobs, Slurm's rows, nodes that a job may use."""
