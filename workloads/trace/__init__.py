"""What is done to traces: summaries, transforms and models, each a pure function with its seed."""
