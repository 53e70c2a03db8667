"""Holding and letting go, on time: the gate through which all goes, and the thread that switches."""
