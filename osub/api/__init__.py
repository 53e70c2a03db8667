"""The Python interface: traces in, runs out, comparisons and pages of them.

It is above every other package, and none imports it; ``import osub`` offers its names.
"""

from osub.api import simulation
from osub.api.run import Comparison, Run, compare, load, report
from osub.api.trace import Trace, load_trace
from osub.api.words import speaks_of_parameters, takes_kinds

simulate = speaks_of_parameters(takes_kinds(simulation.simulate))

__all__ = ["Comparison", "Run", "Trace", "compare", "load", "load_trace", "report", "simulate"]
