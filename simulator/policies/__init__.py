"""Which waiting jobs start: first come first served, EASY, or a user's policy (``rule``)."""
