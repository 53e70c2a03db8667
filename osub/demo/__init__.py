"""The demo: the same jobs under several ways to share the host's cores, replayed, then simulated.

It needs several packages at once (``deploy``, ``submitter``, ``simulator``), so it is above them, and below
the command line.
"""
