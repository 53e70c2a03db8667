"""The agent's side of what is said between it and its controllers, and what it has to report."""
