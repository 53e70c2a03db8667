"""A live cluster as a whole: its Slurm, and who takes turns on its cores.

This needs several rooms at once (``deploy``, ``gangd``, ``submitter``), so it stands above them, and below
the command line.
"""
