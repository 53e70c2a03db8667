"""Applications that are measured in pairs: each runs until it is ended and tells its steps by a meter."""
