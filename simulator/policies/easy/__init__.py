"""First come first served and EASY, on dedicated and on shared cores, as kernels and in plain Python."""
