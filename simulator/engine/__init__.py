"""Runs pools under the policy that it is given: kernels as a whole, plug-ins event by event."""
