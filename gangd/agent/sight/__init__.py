"""What the agent sees of its node: steps, strangers, and what jobs use."""
