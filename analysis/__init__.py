"""What is computed from RUN directories: metrics, comparisons, reports."""
