"""CoSim's study again: scenarios of Theta, three solvers, and every V claim."""
