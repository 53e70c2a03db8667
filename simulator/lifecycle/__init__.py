"""The lifecycle of a job: start, progress, checkpoint, resize, preemption, restart, end."""
