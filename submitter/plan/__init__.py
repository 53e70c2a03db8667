"""What will be submitted, and how: from a trace and a cluster to timed submissions. Nothing is sent here."""
