"""What the scheduler knows of each job: how busy it is, where it runs, what it lost, when it ends."""
