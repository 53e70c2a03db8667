"""osub: oversubscribe a Slurm cluster, replay traces on it, simulate it, and measure what comes of it.

``import osub`` is the Python interface for notebooks and scripts::

    run = osub.simulate("trace.swf.gz", "N150C12", multiplicity=2)
    run.metrics().kinds["all"].wait_s.mean

Its names are in ``__all__`` and imported when they are first used, so that the import itself costs nothing.
It is above every other package, and none imports it: shared code is in ``foundation`` and ``analysis``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from foundation.version import VERSION

if TYPE_CHECKING:
    from foundation.errors import OsubError as OsubError
    from osub.api import Comparison as Comparison
    from osub.api import Run as Run
    from osub.api import SimulationSpec as SimulationSpec
    from osub.api import Trace as Trace
    from osub.api import compare as compare
    from osub.api import load as load
    from osub.api import load_trace as load_trace
    from osub.api import report as report
    from osub.api import simulate as simulate

__version__ = VERSION
__all__ = [
    "Comparison",
    "OsubError",
    "Run",
    "SimulationSpec",
    "Trace",
    "compare",
    "load",
    "load_trace",
    "report",
    "simulate",
]


def __getattr__(name: str) -> object:
    """Import what is asked for; AttributeError for any other name."""
    if name not in __all__:
        raise AttributeError(f"module 'osub' has no attribute {name!r}; it offers {', '.join(__all__)}")
    return getattr(import_module("foundation.errors" if name == "OsubError" else "osub.api"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
