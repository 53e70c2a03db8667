"""Pure gang scheduling: typed events in, typed commands out; no socket, file, clock, log or random number.

::

    cores = CoreMap({"n1": 12, "n2": 12})
    scheduler = GangScheduler(Settings(), start_ns=now, cores=cores)
    for node in ("n1", "n2"):
        scheduler.handle(AgentJoined(now, node))
    jobs = (JobView(7, 7, cores.pack({"n1": range(12)})), JobView(8, 8, cores.pack({"n1": range(12)})))
    scheduler.handle(SlurmSnapshot(now, now, wall_s, jobs))
    commands = scheduler.handle(Tick(now + 1_500_000_000))    # [Publish(...)]

Events (``scheduler_events``)
    ``SlurmSnapshot`` all jobs that hold nodes, at an interval; ``NodeReport`` what a node did and saw;
    ``AgentJoined``, ``AgentLost``; ``Tick`` one in each slice, at which slices are decided; ``Reload``;
    ``Shutdown``. Instants are integer nanoseconds of one clock that never goes back. A refused event
    raises ``InvalidEvent`` and changes nothing.
Commands (``scheduler_events``, too)
    ``Publish`` tracks in force from a slice on; ``Exempt`` jobs that are not to be held, at once;
    ``ThawAll``; ``MoveEnd``; ``RecordRows`` rows; ``Alarm``; ``AskSlurm``; ``BeganToShare``.
Questions
    ``scheduler.gangs``, ``neighbours``, ``owners(slice)``, ``time`` (where slices lie), ``horizon``,
    ``agents``, ``place(job, node)``, ``limits_state()``.

Read ``states`` first (the tables and the theory), then ``gang_group`` (who owns a slice, and why none
starves), ``slice_scheduler`` (only what changed is worked out), ``scheduler``.

A simulator that knows the demand of its jobs sends ``AgentJoined`` for every node once and a
``NodeReport`` now and then (a lease without one loses the node), uses ``Settings(grace_ns=0)``, and reads
``Publish``: a track's slice ``n`` is ``run[(n - first_slice) % len(run)]`` if it repeats.
"""
