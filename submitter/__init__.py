"""Replays a job trace against a real Slurm: a pure plan, then a clock that submits it.

``plan`` turns a trace into timed submissions, ``script`` each of them into a batch script, ``pace``
submits them at their instants, ``follow`` makes rows of what became of them; ``replay`` puts these
together and ``resume`` finds out what a killed replay had done.
"""
