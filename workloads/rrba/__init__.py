"""RRBA, the application that reproduces a batch job's run time: coupled time steps on MPI ranks."""
