"""A live cluster as a whole: its Slurm, and its gang scheduler.

This needs several packages at once (``deploy``, ``gangd``, ``submitter``), so it is above them, and below
the command line.
"""
