"""The daemon on each node: holds and runs jobs at the instants that the controller published.

``node_agent`` decides in passes of one order; ``agenda`` knows what is due when, ``decide`` what is held and
why (pure), ``slice_tracker`` the slices. ``agent_loop`` is the daemon, ``assemble`` puts it together,
``thaw_tool`` is what an operator uses when no daemon is left.

``hold_controller`` is the only place where anything is frozen; ``switch_thread`` calls it on time. ``steps``,
``job_meters``, ``process_scan`` and ``freeze_verifier`` are what the node shows, ``conversation`` is what is
said to the controller, ``linux_host`` what is asked of Linux.
"""
