"""The event loops: of jobs that run once, and of jobs with lifecycles."""
