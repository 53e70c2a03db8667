"""The state of a simulation: tables, sets of nodes, what happens next, what was held."""
