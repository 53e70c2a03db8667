"""What is simulated: jobs, their sizes, nodes, queues and outages."""
