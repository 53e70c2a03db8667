"""One trace under one setting: options, the trace's jobs in simulated form, and the run."""
