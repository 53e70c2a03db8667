"""Time-sharing against batch, as Hofmeyr et al. compared them: a trace like Edison's, and every T claim."""
