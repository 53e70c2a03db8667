"""The offset between an agent's and the controller's monotonic clock, and how far it can be trusted.

``gangd.clock.offset`` is the whole of it: pure, fed with four time stamps a probe.
"""
