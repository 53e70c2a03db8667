"""Figures of a run, from the rows of its RUN: what jobs held and waited, what the system was used for."""
