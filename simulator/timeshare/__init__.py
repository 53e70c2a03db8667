"""Jobs on whole nodes, shared in time or one a node: the loop of the time-sharing family."""
