"""What to vary: a TOML file with what all points have, a grid, lists taken together, points, and repeats."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foundation.errors import UsageError
from foundation.one_line import one_line
from foundation.specification import SpecField, given_fields, read_tables
from simulator.simulation_spec import SimulationSpec
from submitter.plan import ReplaySpec

Value = str | int | float | bool
Parameters = dict[str, Value]

MOST_POINTS = 1_000_000
SIMULATED = {
    name: field for name, field in given_fields(SimulationSpec).items() if field.extra.get("swept", True)
}
"""What a simulation takes."""
FILES = {name for name, field in SIMULATED.items() if field.is_path} | {"pairing", "calibration"}
"""Parameters that name a file or a folder."""
_TABLES = ("base", "grid", "zip", "point", "repeat")
KIND = "kind"
"""What becomes of a point: it is simulated (``simulate``, without a word), or replayed (``replay``)."""
KINDS = ("simulate", "replay")
REPLAY_FIELDS = {
    name: field for name, field in given_fields(ReplaySpec).items() if field.extra.get("swept", True)
}
REPLAYED = (
    *("trace", "system", "multiplicity", "multiplicity_interactive", "interactive_nodes"),
    *("queues", "gang", "hold", "quantum_ms", "scheduler", "virtual", "export", *REPLAY_FIELDS),
)
"""What a replay takes: what ``osub cluster up`` says of a cluster, and options of ``osub replay``."""
_PATHS = FILES | {"cluster"}
_KINDS = {
    name: SpecField(name, kind, frozenset({kind}), None, "", None, {})
    for name, kind in {
        **dict.fromkeys(("gang", "scheduler", "export", *_PATHS), str),
        "virtual": bool,
    }.items()
}
_KINDS = REPLAY_FIELDS | _KINDS | SIMULATED
"""What parameters take, as far as that is known."""
_LARGEST = 1 << 63
_COUNTABLE = 10**15
"""Beyond it the number of points is not printed."""
SETTING = "set."
"""Options of a policy are swept as ``set.NAME``."""
REPEATS = ("seed", "trial")
"""What makes the same setting run again; a sweep's ``[repeat]`` may name more."""
_CHOICES = frozenset(
    (
        *("multiplicity", "multiplicity_interactive", "queues", "interactive_share", "interactive_nodes"),
        *("policy", "preemption", "placement", "pairing", "pairing_threshold", "quantum_ms", "hold", "gang"),
        *("scheduler", "limits", "checkpoint_interval", "after_failure", "cluster", "memory"),
        *("memory_coverage", "memory_mib", "partition", "interactive_partition", "account", "qos"),
    )
)


@dataclass(frozen=True, slots=True)
class Spec:
    """A sweep as it was asked for.

    Parameters
    ----------
    base
        Parameters of all points.
    grid
        Lists of which every combination is taken.
    zips
        Lists of one length each, of which the first, the second, ... are taken together.
    points
        Single points, besides the combinations.
    repeats
        Lists of which every combination is run with each point; results are means over them.
    """

    base: Parameters
    grid: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    zips: Sequence[Mapping[str, Sequence[Value]]] = ()
    points: Sequence[Parameters] = ()
    repeats: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def combinations(self) -> list[Parameters]:
        """Return the parameters of each point, in the order of the file; a point that comes twice, once.

        Raises
        ------
        UsageError
            There are none, or more than ``MOST_POINTS``.
        """
        axes = [[{name: value} for value in values] for name, values in self.grid.items()]
        axes += [
            [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
            for table in self.zips
        ]
        again = math.prod(map(len, self.repeats.values()))
        count = (math.prod(map(len, axes)) if axes else 0) + len(self.points)
        if max(1, count) * again > MOST_POINTS:
            count_text = f"{count * again:,}" if count * again < _COUNTABLE else "so many"
            raise UsageError(f"{count_text} points are more than {MOST_POINTS:,}")
        found = [
            self.base | {name: value for part in parts for name, value in part.items()}
            for parts in (itertools.product(*axes) if axes else ())
        ]
        found += [self.base | point for point in self.points]
        if not found and (self.base or self.repeats):
            found = [self.base]
        runs = [
            dict(zip(self.repeats, row, strict=True)) for row in itertools.product(*self.repeats.values())
        ]
        found = [point | run for point in found for run in runs]
        if not found:
            raise UsageError("no point to run: [base] names a trace and a system, [grid] what to vary")
        once = list({_identity(one): one for one in found}.values())
        kinds = {point.get(KIND, KINDS[0]) for point in once}
        known = {kind: frozenset(known_parameters(str(kind))) for kind in kinds}
        return [_fitting(point, known) for point in once]

    def varied(self) -> list[str]:
        """Return the names of what differs between points, in the order of the file."""
        names = [*self.grid, *(name for table in self.zips for name in table)]
        names += [*(name for point in self.points for name in point), *self.repeats]
        return list(dict.fromkeys(names))

    def averaged(self) -> tuple[str, ...]:
        """Return the names of what results are means over."""
        return tuple(dict.fromkeys((*REPEATS, *self.repeats)))


def read_spec(path: Path) -> Spec:
    """Read a file.

    Raises
    ------
    InputError
        It cannot be read or is no TOML.
    UsageError
        It has something that neither a simulation nor a replay has, or lists of different lengths under
        ``[[zip]]``.
    """
    tables = read_tables(path, "sweep")
    strange = [name for name in tables if name not in _TABLES]
    if strange:
        raise UsageError(
            f"{path}: there is no table {one_line(strange[0], 60)}; there are {', '.join(_TABLES)}"
        )
    where = path.parent
    base = _parameters(path, "[base]", tables.get("base", {}), where)
    grid = _lists(path, "[grid]", tables.get("grid", {}), where)
    zips = [_lists(path, "[[zip]]", table, where) for table in _several(path, "zip", tables)]
    for table in zips:
        lengths = {name: len(values) for name, values in table.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name} has {length}" for name, length in lengths.items())
            raise UsageError(f"{path}: lists under one [[zip]] have one length; {listed}")
        if not table:
            raise UsageError(f"{path}: a [[zip]] names lists that are taken together; this one names none")
    points = [_parameters(path, "[[point]]", table, where) for table in _several(path, "point", tables)]
    repeats = _lists(path, "[repeat]", tables.get("repeat", {}), where)
    elsewhere = {
        *grid,
        *(name for table in zips for name in table),
        *(name for one in points for name in one),
    }
    for name in repeats:
        if is_choice(name):
            raise UsageError(f"{path}: {name} is what a user chooses, no repeat: name it under [grid]")
        if name in elsewhere:
            raise UsageError(f"{path}: {name} is under [repeat] and elsewhere; name it once")
    return Spec(base, grid, zips, points, repeats)


def is_choice(name: str) -> bool:
    """Return whether a user or a site can set a parameter, as an option of a policy or of Slurm."""
    return name in _CHOICES or name.startswith(SETTING)


def known_parameters(kind: str) -> list[str]:
    """Return what can be swept of a kind of point; raises UsageError for a kind that is none."""
    if kind not in KINDS:
        raise UsageError(f"a point's kind is {' or '.join(KINDS)}, not {one_line(kind, 60)}")
    if kind == "replay":
        return list(REPLAYED)
    return list(SIMULATED)


def _identity(point: Parameters) -> tuple[tuple[str, bool, Value], ...]:
    """Return what two equal points have in common: 1 and 1.0 are the same number, true is none."""
    return tuple((name, isinstance(value, bool), value) for name, value in sorted(point.items()))


def _fitting(point: Parameters, known: Mapping[Value, frozenset[str]]) -> Parameters:
    """Return a point without what only points of the other kind take, where the sweep has both kinds.

    Raises
    ------
    UsageError
        It lacks a trace or a system, or has what its kind does not take.
    """
    kind = point.get(KIND, KINDS[0])
    own = known[kind]
    strange = [
        name
        for name in point
        if name != KIND and name not in own and not (name.startswith(SETTING) and "policy" in own)
    ]
    others = frozenset[str]().union(*known.values())
    for name in strange:
        if len(known) == 1 or not (name in others or name.startswith(SETTING)):
            raise UsageError(
                f"{name} is nothing that a point of kind {kind} takes; it takes {', '.join(sorted(own))}"
            )
    kept = {name: value for name, value in point.items() if name not in strange}
    for name in ("trace", "system"):
        if name not in kept and not (name == "system" and "cluster" in kept):
            raise UsageError(f"a point has no {name}: name it under [base], or vary it")
    return kept


def _several(path: Path, name: str, tables: Mapping[str, object]) -> list[object]:
    found = tables.get(name, [])
    if not isinstance(found, list):
        raise UsageError(f"{path}: write [[{name}]] with two brackets, once for each")
    return found


def _lists(path: Path, where: str, table: object, folder: Path) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for name, values in _pairs(path, where, table):
        if not isinstance(values, list) or not values:
            raise UsageError(f"{path}: {name} under {where} takes a list of values, such as [1, 2]")
        found[name] = [_value(path, name, value, folder) for value in values]
    return found


def _parameters(path: Path, where: str, table: object, folder: Path) -> Parameters:
    return {name: _value(path, name, value, folder) for name, value in _pairs(path, where, table)}


def _pairs(path: Path, where: str, table: object) -> list[tuple[str, object]]:
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {where} is a table of names and values")
    flat: list[tuple[str, object]] = []
    for name, value in table.items():
        if name == "set" and isinstance(value, dict):
            flat += [(SETTING + option, one) for option, one in value.items()]
        else:
            flat.append((name, value))
    known = list(dict.fromkeys([KIND, *known_parameters("simulate"), *REPLAYED]))
    for name, _ in flat:
        if name not in known and not name.startswith(SETTING):
            near = difflib.get_close_matches(name[:60], known, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            raise UsageError(
                f"{path}: nothing is called {one_line(name, 60)} under {where}{meant}; there are "
                f"{', '.join(known)}, set.NAME"
            )
    return flat


def _value(path: Path, name: str, value: object, folder: Path) -> Value:
    if not isinstance(value, str | int | float) or (isinstance(value, float) and not math.isfinite(value)):
        raise UsageError(
            f"{path}: {name} takes texts, numbers and true or false, not {one_line(repr(value), 60)}"
        )
    wanted = _KINDS[name].wanted(value) if name in _KINDS else None
    if wanted is not None:
        raise UsageError(f"{path}: {name} takes {wanted}, not {one_line(repr(value), 60)}")
    if isinstance(value, int) and not -_LARGEST <= value < _LARGEST:
        raise UsageError(f"{path}: {name} takes numbers of 64 bits at most")
    if name in _PATHS and isinstance(value, str):
        # As in a shell: relative to the file that names it.
        return str((folder / value).resolve())
    return value
