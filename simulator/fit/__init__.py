"""What a real run tells of the Slurm that scheduled it, for ``--policy slurm``."""
