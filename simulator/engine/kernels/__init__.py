"""How kernels are declared and compiled, and the records that they read and write."""
