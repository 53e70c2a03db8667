"""Ways to stand up a Slurm cluster that oversubscribes: on this host, in containers, under systemd."""
