"""Evicting jobs from a live Slurm: ``orders`` says what is done to a job, ``carry_out`` does it."""
