"""Replays a job trace against a real Slurm: a pure plan, then a clock that submits it.

``plan`` turns a trace into timed submissions and batch scripts; ``replay`` submits them at their instants,
and goes on where a killed one ended; ``follow`` makes rows of what became of them. ``calibration`` runs jobs
alone, ``eviction`` takes jobs from their nodes.
"""
