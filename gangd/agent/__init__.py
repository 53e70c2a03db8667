"""The daemon on each node: holds and runs jobs at the instants that the controller published.

``gangd.agent.node_agent`` decides in passes of one order; ``agenda`` knows what is due when, ``decide`` what
is held and why (pure), ``node_observer`` when to look at what, ``slice_tracker`` the slices. ``agent_loop``
is the daemon, ``assemble`` puts it together, ``thaw_tool`` is what an operator uses when no daemon is left.

``switching`` acts on time, and only there anything is frozen; ``sight`` is what the node shows, ``talk`` what
is said to the controller, ``host`` what is asked of Linux.
"""
