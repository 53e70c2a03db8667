"""How commands of Slurm are run: environment, options of sbatch, the configuration file."""
