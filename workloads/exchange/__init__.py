"""Workloads, platforms and results of other simulators: Batsim, ElastiSim, and what evalys reads."""
