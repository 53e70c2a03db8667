"""The controller: asks Slurm, lets the core decide, and tells the agents; ``loop`` is where to begin."""
