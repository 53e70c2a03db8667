"""The controller's side of what is said between it and the agents."""
