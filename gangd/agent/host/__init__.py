"""What the agent asks of Linux itself: timers, notices of changed files, priority."""
