"""Importer of dcslab's archive: programs of eight threads alone and with SP, on cores of their own.

The archive (``bc5``) has a folder a run: ``solorun/8core/SUITE/NAME`` and ``corun/8core/A-B``. In each,
``result.json`` tells the run times, and ``perf/NAME.csv`` what the processor counted, a row a sample. The
runs were on separate cores of one socket without hyper-threading, so the kind is ``cores`` and the ideal loss
0. Both programs begin together and run to their ends: they overlap until the first ends. A run without a
result is left out, and said.

An archive is not trusted: only plain files with such names are looked at, one after the other, and their
sizes are bounded.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tarfile
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from foundation.errors import InputError
from foundation.one_line import one_line
from foundation.units import counted
from foundation.version import VERSION
from predictor.dataset import (
    APPLICATIONS,
    COUNTERS,
    FORMAT_VERSION,
    NAME,
    SOLO,
    TRIALS,
    About,
    CounterSource,
    MeasuredHost,
    PairKind,
    Pairs,
    pair_frame,
)

COUNTED = {
    "l2miss": "PAPI_L2_TCM",
    "l3miss": "PAPI_L3_TCM",
    "cycles": "PAPI_TOT_CYC",
    "stall_cycles": "PAPI_RES_STL",
    "local_mem": "LOCAL_MEMORY_BYTES",
    "remote_mem": "REMOTE_MEMORY_BYTES",
}
"""Columns of a sample and what they are called here; each is given per instruction."""
INSTRUCTIONS, INSTRUCTIONS_NAME = "instructions", "PAPI_TOT_INS"
"""Given per second of the run."""

_RUN = r"(?:\./)?(?:[\w.-]+/)?%s/\w+/(?:[\w.-]+/)?([\w.+-]+)"
_RESULT = re.compile(_RUN % "(solorun|corun)" + r"/result\.json")
_CONFIG = re.compile(_RUN % "solorun" + r"/config\.json")
_SAMPLES = re.compile(_RUN % "solorun" + r"/perf/([\w.+-]+)\.csv")
_MOST_MEMBERS, _MOST_BYTES, _MOST_IN_ALL = 100_000, 64 << 20, 512 << 20


@dataclass(slots=True)
class _Found:
    alone: dict[str, float] = field(default_factory=dict)
    together: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)
    totals: dict[str, dict[str, float]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    newest: float = 0.0


def read_dcslab(path: Path) -> tuple[Pairs, list[str]]:
    """Read the archive; returns what a PAIRS folder holds, and what was left out, a line each.

    ``E_v = (T_together - T_alone) / overlap`` and ``E_o = (T_together - T_alone) / T_together`` of the
    opponent (equations 4.1 and 4.2 of Minami's thesis), from whole runs; one trial a pair, so no intervals.

    Raises
    ------
    InputError
        It is no such archive, or a file in it is damaged; one line that names the file.
    """
    found = _walk(path)
    notes = [f"{name} was run alone, and has no result" for name in sorted(found.asked - set(found.alone))]
    pairs: dict[tuple[str, str], tuple[float, float]] = {}
    for (one, other), times in sorted(found.together.items()):
        missing = [name for name in (one, other) if name not in found.alone]
        if missing:
            notes.append(f"{one} with {other}: {missing[0]} has no run alone")
        else:
            pairs[one, other] = times
    if not pairs:
        raise InputError(f"{path} has no two programs that ran together and alone")
    return _content(found, pairs, notes), notes


def _walk(path: Path) -> _Found:
    found, members, bytes_read = _Found(), 0, 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                members += 1
                if members > _MOST_MEMBERS:
                    raise InputError(f"{path} has over {_MOST_MEMBERS} files; it is no archive of dcslab's")
                if not member.isfile():
                    continue
                bytes_read += member.size
                if member.size > _MOST_BYTES or bytes_read > _MOST_IN_ALL:
                    raise InputError(f"{path}: {one_line(member.name, 80)} is too long to be of dcslab's")
                stream = archive.extractfile(member)
                if stream is not None:
                    _meet(member.name, stream.read, found, path)
                    found.newest = max(found.newest, member.mtime)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"{path} is no tar archive, or is damaged: {one_line(str(error))}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or one_line(str(error))}") from error
    return found


def _meet(name: str, read: Callable[[], bytes], found: _Found, path: Path) -> None:
    """Take what a file of the archive says, if it is one that says something."""
    where = f"{path}: {one_line(name, 120)}"
    if asked := _CONFIG.fullmatch(name):
        found.asked.add(_plain(asked[1], where))
    elif result := _RESULT.fullmatch(name):
        times = _times(read(), where)
        if result[1] == "solorun":
            if len(times) != 1:
                raise InputError(f"{where}: a run alone has {counted(len(times), 'run time')}")
            found.alone.update(times)
        else:
            if len(times) != 2:
                raise InputError(f"{where}: a run of two has {counted(len(times), 'run time')}")
            (one, one_s), (other, other_s) = times.items()
            found.together[one, other] = one_s, other_s
    elif (samples := _SAMPLES.fullmatch(name)) and samples[1] == samples[2]:
        found.totals[_plain(samples[1], where)] = _totals(read(), where)


def _plain(name: str, where: str) -> str:
    if not re.match(NAME, name):
        raise InputError(f"{where}: {one_line(name, 40)} is no plain name of a program")
    return name


def _times(text: bytes, where: str) -> dict[str, float]:
    try:
        runtimes = json.loads(text)["runtime"]
        times = {_plain(str(name), where): float(seconds) for name, seconds in runtimes.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{where}: no run times: {one_line(str(error), 80)}") from error
    for name, seconds in times.items():
        if not 0 < seconds < 1e9:
            raise InputError(f"{where}: {name} ran for {seconds} s")
    return times


def _totals(text: bytes, where: str) -> dict[str, float]:
    """Return the sums over all samples of the columns that are known."""
    rows = csv.reader(io.StringIO(text.decode("ascii", "replace")))
    try:
        header = next(rows)
    except (StopIteration, csv.Error) as error:
        raise InputError(f"{where} is empty") from error
    wanted = [(at, name) for at, name in enumerate(header) if name in COUNTED or name == INSTRUCTIONS]
    sums: dict[str, float] = defaultdict(float)
    try:
        for number, row in enumerate(rows, 2):
            if len(row) != len(header):
                raise InputError(f"{where}: line {number} has {len(row)} values and not {len(header)}")
            for at, name in wanted:
                sums[name] += float(row[at])
    except (ValueError, csv.Error) as error:
        raise InputError(f"{where}: line {rows.line_num}: {one_line(str(error), 80)}") from error
    if not 0 < sums[INSTRUCTIONS] < 1e30 or any(not 0 <= value < 1e30 for value in sums.values()):
        raise InputError(f"{where}: sums of counters that are impossible")
    return dict(sums)


def _content(found: _Found, pairs: dict[tuple[str, str], tuple[float, float]], notes: list[str]) -> Pairs:
    when = datetime.fromtimestamp(min(max(found.newest, 0.0), 4e9), UTC)
    kind = str(PairKind.CORES)
    applications = [
        {"application": name, "family": name, "command": [name], "ranks": 1, "step": "a run"}
        for name in sorted(found.alone)
    ]
    solo = [
        {
            "application": name,
            "kind": kind,
            "trial": 0,
            "started": when,
            "wall_s": seconds,
            "steps": 1.0,
            "speed": 1 / seconds,
        }
        for name, seconds in sorted(found.alone.items())
    ]
    counters = [
        row
        for name, totals in sorted(found.totals.items())
        if name in found.alone
        for row in _counters(name, totals, found.alone[name])
    ]
    rows = [
        row
        for (one, other), (one_s, other_s) in sorted(pairs.items())
        for row in (
            _trial(one, other, one_s, other_s, found.alone, when),
            _trial(other, one, other_s, one_s, found.alone, when),
        )
    ]
    trials = TRIALS.frame(rows)
    about = About(
        version=FORMAT_VERSION,
        osub=VERSION,
        host=MeasuredHost(
            name="dcslab",
            cpu_model="unknown; 2.1 GHz, eight cores a program",
            cpus=16,
            threads_per_core=1,
            l2_kib=None,
            l3_kib=None,
            memory_mib=None,
            kernel="unknown",
        ),
        started=when,
        ended=when,
        kinds=[PairKind.CORES],
        counter_sources=[CounterSource.PERF],
        notes=["imported from dcslab's archive; it does not say when it was measured", *notes],
    )
    return Pairs(
        about,
        APPLICATIONS.frame(applications),
        COUNTERS.frame(counters),
        SOLO.frame(solo),
        trials,
        pair_frame(trials, 1.0),
    )


def _counters(name: str, totals: dict[str, float], seconds: float) -> list[dict[str, object]]:
    per_instruction = [
        (counter, "instruction", totals[column] / totals[INSTRUCTIONS])
        for column, counter in COUNTED.items()
        if column in totals
    ]
    rows = [*per_instruction, (INSTRUCTIONS_NAME, "second", totals[INSTRUCTIONS] / seconds)]
    return [
        {
            "application": name,
            "source": str(CounterSource.PERF),
            "counter": counter,
            "per": per,
            "value": value,
        }
        for counter, per, value in rows
    ]


def _trial(
    victim: str, opponent: str, victim_s: float, opponent_s: float, alone: dict[str, float], when: datetime
) -> dict[str, object]:
    return {
        "kind": str(PairKind.CORES),
        "victim": victim,
        "opponent": opponent,
        "trial": 0,
        "started": when,
        "speed_victim": 1 / victim_s,
        "speed_opponent": 1 / opponent_s,
        "solo_victim_before": 1 / alone[victim],
        "solo_victim_after": 1 / alone[victim],
        "solo_opponent_before": 1 / alone[opponent],
        "solo_opponent_after": 1 / alone[opponent],
        "busy_victim": 1.0,
        "busy_opponent": 1.0,
        "e_v": (victim_s - alone[victim]) / min(victim_s, opponent_s),
        "e_o": (opponent_s - alone[opponent]) / opponent_s,
    }
