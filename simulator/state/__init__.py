"""The state of a simulation: tables, sets of nodes, the event queue, allocations."""
