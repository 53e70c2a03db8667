"""Which running jobs to kill or to checkpoint so that nodes are free by a deadline (CoSim).

``problem`` is what is asked and answered, ``table`` the dynamic programme, ``greedy`` and ``backtracking``
the baselines, ``solve`` one call for all of them; ``cheapest`` is the call for a scheduler that preempts.
"""

from simulator.eviction.eviction_problem import EvictableJob, EvictionAnswer, EvictionChoice, Question
from simulator.eviction.solvers import EvictionSolver, cheapest, solve
