"""A seeded campaign of faults against gangd on a real Slurm; start reading at ``campaign``."""
