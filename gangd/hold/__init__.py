"""Holding a job by priority: it yields, and takes only what the owner of the slice leaves.

Begin with ``gangd.hold.deprioritizer``: the protocol ``Deprioritizer``, whose unit is the job.
``deprioritizer_choice`` picks the best way that a host offers: ``own_groups`` (a cpu cgroup of the agent's
own for each job, v1 and v2), ``slurm_job_folders`` (the folders that Slurm made, v1 and v2) or ``sched_idle``
(the policy of each thread). ``cpu_priority`` writes the control files, also for the guardian. ``BothWays``
joins a freezer and a yielder into one ``Holder``.
"""
