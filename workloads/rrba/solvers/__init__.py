"""Four solvers with the computational structure of the NAS Parallel Benchmarks BT, SP, LU and MG."""
