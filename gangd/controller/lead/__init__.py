"""Which of several controllers acts, and what it keeps for the one that comes after it."""
