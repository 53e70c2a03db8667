"""The one view of Slurm: jobs with node and core ids, nodes, partitions, and the few verbs we need."""
