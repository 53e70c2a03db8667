"""Solvers with the computational structure of the NAS Parallel Benchmarks, and a heat equation."""
