"""Slices after which both sides look: agents collect, sample and report, the controller decides.

Python code that runs beside a job costs the job more than its own CPU time: it finds cold caches, and a rank
of a tightly coupled job that waits makes all ranks wait. Switching is done at every slice by a thread that
does little else; all the rest is done once in about ``LOOK_NS``, however short the slices are.

All nodes look after the same slices, so that what they say of a job that spans nodes is of the same time.
Looks are an odd number of slices apart and move on by one slice after every eighth: of jobs that take turns,
each is then seen held and seen running.

A node on which everything goes on as it has for seconds looks after every few looks only, by the same rule:
an odd number of them apart, moving on now and then, the same ones everywhere.
"""

from __future__ import annotations

LOOK_NS = 250_000_000
CALM_NS = 900_000_000
"""Looks of a calm node are at most this far apart: agents report about once a second whatever happens."""
_LOOKS_A_PHASE = 8


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


def next_look(number: int, quantum_ns: int, *, calm: bool = False) -> int:
    """Return the first slice from ``number`` on that begins with a look (of a calm node)."""
    while not is_look(number, quantum_ns, calm=calm):
        number += 1
    return number
