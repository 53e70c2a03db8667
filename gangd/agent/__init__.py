"""The daemon on each node: holds and runs jobs at the instants that the controller published.

``gangd.agent.mind`` is its mind, in passes of one order; ``agenda`` knows what is due when, ``decide`` what
is held and why (pure), ``looks`` what there is on the node, ``turns`` the slices. ``loop`` is the daemon,
``switch`` the thread that acts on time, ``gate`` the only place where anything is frozen, ``conversation``
what it says to the controller, ``hammer`` what an operator uses when no daemon is left.
"""
