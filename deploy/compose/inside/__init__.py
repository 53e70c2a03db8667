"""What runs in the containers: each starts its own daemons, waits for what they need, and ends them in order.

It needs Python and what a compute node installs, and nothing of the host.
"""
