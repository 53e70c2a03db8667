"""What controller and agents tell a monitoring system.

``metrics_table`` declares it, ``metrics_server`` hands it out. Off unless an address is configured, and then
bound to loopback unless another host is named.
"""
