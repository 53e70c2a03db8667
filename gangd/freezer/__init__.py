"""Freezing and thawing the tasks of a Slurm job step on this host, and nothing else.

Begin with ``gangd.freezer.holder``: the protocol ``Holder`` and its values. ``choose`` picks the best
implementation for a host: ``cgroup`` (both generations, told apart by a ``Dialect``), ``signals`` (last
resort) or ``recording`` (tests). ``tree`` is the only way to a control file: it follows no symbolic link and
opens nothing outside Slurm's own job cgroups.
"""
