"""The shared vocabulary of the toolkit: errors, configuration, units, records, Slurm, analysis."""

__version__ = "0.1.0"
