"""Stock NAS Parallel Benchmarks as batch jobs: with a chosen number of iterations, and without a patch."""
