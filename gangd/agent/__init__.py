"""The daemon on each node: holds and runs jobs at the instants that the controller published.

``gangd.agent.mind`` decides in passes of one order; ``agenda`` knows what is due when, ``decide`` what is
held and why (pure), ``looks`` when to look at what, ``turns`` the slices. ``agent_loop`` is the daemon,
``assemble`` puts it together, ``hammer`` is what an operator uses when no daemon is left.

``switching`` acts on time, and only there anything is frozen; ``sight`` is what the node shows, ``talk`` what
is said to the controller, ``host`` what is asked of Linux.
"""
