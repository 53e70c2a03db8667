"""Runs pools: with kernels where all rules are built in, else event by event; and what came of it."""
