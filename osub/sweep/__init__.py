"""Many settings at once: points of a grid, each simulated or replayed once, and kept.

``spec`` reads what to vary, ``points`` makes the points and their keys, ``measure`` runs one of them,
``workers`` has processes or a Dask cluster do it, ``replays`` a real Slurm, ``store`` keeps
what came of it, ``run`` puts these together, ``page`` and ``tell`` show it, ``tune`` searches instead
of trying everything.
"""
