"""The controller: asks Slurm, lets the core decide, tells the agents; begin with ``controller_loop``."""
