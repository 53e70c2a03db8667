"""Slices after which both sides look: agents collect, sample and report, the controller decides.

Python code that runs on a job's core costs the job more than its own CPU time: it finds cold caches, and a
rank of a tightly coupled job that waits makes all ranks wait. Switching is done at every slice by a thread
that does little else; all the rest is done once in about ``LOOK_NS``, however short the slices are.

All nodes look after the same slices, so that what they say of a job that spans nodes is of the same time.
Looks are an odd number of slices apart and move on by one slice after every eighth: of jobs that take turns,
each is then seen held and seen running.

A node on which everything goes on as it has for seconds looks after every few looks only, by the same rule:
an odd number of them apart, moving on now and then, the same ones everywhere.

Of what a node sees, the controller hears at once what is news. In a large cluster (that is: under a long
lease) a node without news is silent meanwhile, for ``silence_ns`` at most. All end their silence at the same
instants, so that what they say of a job that spans nodes is of the same slices.
"""

from __future__ import annotations

LOOK_NS = 250_000_000
CALM_NS = 900_000_000
"""Looks of a calm node are at most this far apart: agents report about once a second whatever happens."""
_LOOKS_A_PHASE = 8
SHORT_LEASE_NS = 2_000_000_000
"""Up to this lease a node reports after every look."""
MOST_UNTOLD_SLICES = 60
"""Slices that a node reports at once at most: it keeps 64."""


def slices_a_look(quantum_ns: int) -> int:
    """Return how many slices of ``quantum_ns`` lie between two looks: odd, 1 from 250 ms on."""
    fitting = max(1, LOOK_NS // quantum_ns)
    return fitting + 1 - fitting % 2


def looks_a_calm_look(quantum_ns: int) -> int:
    """Return after how many looks a calm node looks: odd, 1 for slices that are long themselves."""
    fitting = max(1, CALM_NS // (slices_a_look(quantum_ns) * quantum_ns))
    return fitting - 1 + fitting % 2


def is_look(number: int, quantum_ns: int, *, calm: bool = False) -> bool:
    """Whether the switch that begins slice ``number`` is followed by a look (of a calm node)."""
    spacing = slices_a_look(quantum_ns)
    look, place = divmod(number, spacing)
    if calm:
        every = looks_a_calm_look(quantum_ns)
        if look % (every * _LOOKS_A_PHASE - 1) % every:  # of eight, one comes a look earlier
            return False
    return place == look // _LOOKS_A_PHASE % spacing


def silence_ns(lease_ns: int, quantum_ns: int) -> int:
    """Return for how long a node without news is silent; 0 if it reports after every look.

    A lease covers two such reports: one may be late.
    """
    if lease_ns <= SHORT_LEASE_NS:
        return 0
    look_slices = slices_a_look(quantum_ns) * (looks_a_calm_look(quantum_ns) + 1)  # until the look after it
    return min(lease_ns * 9 // 20, (MOST_UNTOLD_SLICES - look_slices) * quantum_ns)


def silence_of(number: int, lease_ns: int, quantum_ns: int) -> int:
    """Return the silence in which a slice is: the first look in each is reported, news or not."""
    return number * quantum_ns // max(silence_ns(lease_ns, quantum_ns), 1)


def next_look(number: int, quantum_ns: int, *, calm: bool = False) -> int:
    """Return the first slice from ``number`` on that begins with a look (of a calm node)."""
    while not is_look(number, quantum_ns, calm=calm):
        number += 1
    return number
