"""The Python interface: traces in, runs out, comparisons and pages of them.

It is above every other package, and none imports it; ``import osub`` offers its names.
"""

from osub.api.run import Comparison, Run, compare, load, report
from osub.api.simulation import simulate
from osub.api.trace import Trace, load_trace
from simulator.simulation_spec import SimulationSpec
