"""The embedded cluster: a real Slurm on this host, each node pinned to its own CPUs."""
