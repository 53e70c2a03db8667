"""Makes the state that a run begins with."""
