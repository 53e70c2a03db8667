"""The compiled loop of hybrid runs: state, passes, reservations, checkpoints."""
