"""The Standard Workload Format, version 2.2: typed reader and writer."""
