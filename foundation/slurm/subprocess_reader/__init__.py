"""Slurm's jobs read in a process of its own, so that the many that it has delay nothing in ours.

``client`` is our side: a ``SlurmClient``. ``process`` is the other: it asks Slurm, parses, and sends over a
pipe what is not as it was (``frames``). A process of its own also bears what a C library may do to it
(``foundation.slurm.reading.pyslurm_library``).
"""
