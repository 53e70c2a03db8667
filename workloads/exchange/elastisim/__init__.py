"""Jobs, applications and results of ElastiSim."""
