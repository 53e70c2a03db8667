"""From a cluster's own accounting to a trace. Start with ``detect.py``."""
