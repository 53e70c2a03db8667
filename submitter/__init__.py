"""Replays a job trace against a real Slurm: a pure plan, then a clock that submits it."""
