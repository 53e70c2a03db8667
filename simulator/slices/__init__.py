"""Exact time slices: the gang scheduler's own core decides who runs in each of them."""
