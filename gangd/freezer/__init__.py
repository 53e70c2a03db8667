"""Freezing and thawing the tasks of a Slurm job step on this host, and nothing else.

Begin with ``gangd.freezer.holder``: the protocol ``Holder`` and its values. ``freezer_choice`` picks the best
implementation for a host: ``cgroup_freezer`` (both generations, distinguished by a ``Dialect``),
``signal_freezer`` (last resort) or one that freezes nothing (tests, and a dry run). ``tree`` is the only
way to a control file: it follows no symbolic link and opens nothing outside Slurm's own job cgroups.
"""
