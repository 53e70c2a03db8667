"""Which cores a job gets: the thesis's rule, Slurm's, or a user's (``rule``)."""
