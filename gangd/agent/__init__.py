"""The daemon on each node: holds and runs jobs at the instants that the controller published.

``gangd.agent.decide`` says what it does and why (pure); ``loop`` is the daemon, ``switch`` the thread that
acts on time, ``gate`` the only place where anything is frozen, ``conversation`` what it says to the
controller, ``hammer`` what an operator uses when no daemon is left.
"""
