"""The controller: asks Slurm, lets the core decide, tells the agents; begin with ``controller_loop``.

``slurm_worker`` asks Slurm, ``slurm_view`` and ``job_policy`` make of it what the core wants to know;
``fanout`` and ``uplink`` are what is said to agents and by them; ``state_directory`` and ``failover`` are the
change of controllers, ``slicelog`` is the record, ``orders`` what operators want.
"""
