"""The engine event by event, for plug-ins in plain Python: what a policy sees and does."""
