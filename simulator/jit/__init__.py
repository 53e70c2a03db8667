"""How kernels are declared, compiled and cached, and the records that they read and write."""
