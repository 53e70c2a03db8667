"""The PAIRS folder while it is being measured: what it had, what comes, and the host that it describes.

``measured.jsonl`` in the folder is appended to, one write a line and a line a trial, so that a kill loses one
trial; a last line that is cut is dropped. The tables are made from it and from what the folder had before,
now and then and at the end; then it goes.
"""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import polars as pl
import psutil

from foundation.errors import InputError, OutputError, UsageError
from foundation.files import refuse_unwritable_folder
from foundation.id_list import read_ids
from foundation.one_line import one_line
from foundation.version import VERSION
from predictor.counters import caches_of
from predictor.dataset import (
    APPLICATIONS,
    COUNTERS,
    FORMAT_VERSION,
    SOLO,
    TRIALS,
    About,
    CounterSource,
    MeasuredHost,
    PairKind,
    Pairs,
    PairsTable,
    pair_frame,
    read_pairs,
    write_pairs,
)
from predictor.measure.pair_trial import Row
from predictor.programs.program_catalogue import CatalogueApplication
from workloads.rrba.steps.calibrations import processor_model

CPUS = Path("/sys/devices/system/cpu")
MOST_CPUS = 65_536


def describe_host() -> MeasuredHost:
    """Return this host's description."""
    first = min(os.sched_getaffinity(0))
    return MeasuredHost(
        name=socket.gethostname().split(".")[0],
        cpu_model=cpu_model(),
        cpus=os.cpu_count() or 1,
        threads_per_core=len(siblings(first)),
        l2_kib=_cache_kib(first, 2),
        l3_kib=_cache_kib(first, 3),
        memory_mib=psutil.virtual_memory().total >> 20,
        kernel=platform.release(),
    )


def siblings(cpu: int, cpus: Path = CPUS) -> list[int]:
    """Return the hardware threads of a CPU's core, itself included."""
    try:
        text = (cpus / f"cpu{cpu}" / "topology" / "thread_siblings_list").read_text()
        return sorted({cpu, *read_ids(text.strip(), MOST_CPUS)})
    except (OSError, ValueError):
        return [cpu]


def thread_siblings() -> tuple[int, int] | None:
    """Return two hardware threads of one core that this process may use; None where there are none."""
    allowed = os.sched_getaffinity(0)
    for cpu in sorted(allowed):
        both = [other for other in siblings(cpu) if other in allowed]
        if len(both) > 1:
            return both[0], both[1]
    return None


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return what this host calls its processor, or its architecture where it does not say."""
    return processor_model(cpuinfo) or platform.machine()


def _cache_kib(cpu: int, level: int) -> int | None:
    return next((size >> 10 for _, size in caches_of(cpu, level)), None)


FLUSH_S = 60.0

JOURNAL_NAME = "measured.jsonl"


class PairsStore:
    """A PAIRS folder to which trials are added.

    Parameters
    ----------
    folder
        Made where it is missing.
    applications
        What is measured now; those that the folder has stay.
    window_s
        A window's length, for the load.
    resume
        Whether the folder may have measurements already.
    notes
        What a reader should know.

    Raises
    ------
    UsageError
        It has measurements, and ``resume`` is not given; or they are of another host's processor.
    InputError
        What is there is no PAIRS folder.
    OutputError
        It cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        applications: Sequence[CatalogueApplication],
        window_s: float,
        *,
        resume: bool,
        notes: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self._window_s = window_s
        self._host = describe_host()
        self._before = self._open(resume)
        self._notes = list(dict.fromkeys([*(self._before.about.notes if self._before else []), *notes]))
        self._footprints: dict[str, int] = {}
        self._applications = list(applications)
        had = self._before
        self._counters = had.counters if had else COUNTERS.empty()
        self._journal = Journal(
            folder, had.trials if had else TRIALS.empty(), had.solo if had else SOLO.empty()
        )
        self._flushed_s = time.monotonic()

    def _open(self, resume: bool) -> Pairs | None:
        has = (self.folder / "about.json").exists()
        begun = has or (self.folder / JOURNAL_NAME).exists()
        if begun and not resume:
            raise UsageError(
                f"{self.folder} has measurements; add to them with --resume or name another folder"
            )
        refuse_unwritable_folder(self.folder)
        if not has:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise OutputError(f"cannot make {self.folder}: {error.strerror}") from error
            return None
        before = read_pairs(self.folder)
        if before.about.host.cpu_model != self._host.cpu_model:
            raise UsageError(
                f"{self.folder} was measured on {before.about.host.cpu_model}, and this is "
                f"{self._host.cpu_model}; name another folder"
            )
        return before

    def trials_of(self, kind: PairKind) -> list[Row]:
        """Return the trials of a kind so far."""
        return self._journal.trials().filter(kind=str(kind)).to_dicts()

    def append(self, trials: list[Row], solo: list[Row], footprints_kib: Mapping[str, int]) -> None:
        """Keep the rows of a trial; the tables are written when a minute has passed."""
        self._journal.append(trials, solo)
        self._footprints.update(footprints_kib)
        if time.monotonic() - self._flushed_s > FLUSH_S:
            self.keep()

    def note(self, text: str) -> None:
        """Add a note for readers."""
        if text not in self._notes:
            self._notes.append(text)

    def counted(self, source: CounterSource) -> set[str]:
        """Return the applications that have counters of a source."""
        return set(self._counters.filter(source=str(source)).get_column("application"))

    def add_counters(self, rows: list[Row]) -> None:
        """Add rows of the counters table, in the place of older ones of the same application and source."""
        fresh = COUNTERS.frame(rows)
        old = self._counters.join(
            fresh.select("application", "source").unique(), on=["application", "source"], how="anti"
        )
        self._counters = pl.concat([old, fresh])

    def flush(self) -> None:
        """Write the tables, and remove the journal, which they hold now."""
        if self.keep():
            self._journal.discard()

    def keep(self) -> bool:
        """Write the tables now, and return whether there is anything to write; the journal stays."""
        trials = self._journal.trials()
        if not trials.height and not self._counters.height:
            return False
        now = datetime.now(UTC)
        begins = [trials["started"].min()] if trials.height else []
        started = self._before.about.started if self._before else (begins[0] if begins else now)
        about = About(
            version=FORMAT_VERSION,
            osub=VERSION,
            host=self._host,
            started=started if isinstance(started, datetime) else now,
            ended=now,
            kinds=[PairKind(kind) for kind in trials["kind"].unique().sort()],
            counter_sources=[CounterSource(source) for source in self._counters["source"].unique().sort()],
            notes=self._notes,
        )
        solo = self._journal.solo()
        tables = self._application_frame(), self._counters, solo, trials, pair_frame(trials, self._window_s)
        write_pairs(self.folder, Pairs(about, *tables))
        self._flushed_s = time.monotonic()
        return True

    def _application_frame(self) -> pl.DataFrame:
        had = self._before.applications if self._before else APPLICATIONS.empty()
        known = {row["application"]: row["footprint_kib"] for row in had.iter_rows(named=True)}
        rows: list[Row] = [
            {
                "application": each.name,
                "family": each.family,
                "command": [Path(word).name if word.startswith("/") else word for word in each.command()],
                "ranks": each.ranks,
                "footprint_kib": self._footprints.get(each.name, known.get(each.name)),
                "step": each.step,
            }
            for each in self._applications
        ]
        fresh = APPLICATIONS.frame(rows)
        return pl.concat([had.join(fresh, on="application", how="anti"), fresh])


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    trials: list[dict[str, object]]
    solo: list[dict[str, object]]


class Journal:
    """Trials and runs alone of a PAIRS folder that is being measured.

    Parameters
    ----------
    folder
        The PAIRS folder, which exists.
    trials, solo
        What it has already.

    Raises
    ------
    InputError
        The journal that is there is none.
    """

    def __init__(self, folder: Path, trials: pl.DataFrame, solo: pl.DataFrame) -> None:
        self.path = folder / JOURNAL_NAME
        self._trials: list[Row] = trials.to_dicts()
        self._solo: list[Row] = solo.to_dicts()
        self._runs: dict[tuple[object, object], int] = {}
        for row in self._solo:
            self._count(row)
        self._load()

    def append(self, trials: list[Row], solo: list[Row]) -> None:
        """Keep the rows of a trial, on disk first.

        Raises
        ------
        OutputError
            They cannot be written.
        """
        for row in solo:
            row["trial"] = self._count(row)
        line = msgspec.json.encode({"trials": trials, "solo": solo}) + b"\n"
        try:
            fd = os.open(
                self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644
            )
            try:
                os.write(fd, line)
            finally:
                os.close(fd)
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from error
        self._trials += trials
        self._solo += solo

    def trials(self) -> pl.DataFrame:
        """Return the trials table."""
        return _frame(TRIALS, self._trials)

    def solo(self) -> pl.DataFrame:
        """Return the solo table."""
        return _frame(SOLO, self._solo)

    def discard(self) -> None:
        """Remove the journal: the tables have it all."""
        self.path.unlink(missing_ok=True)

    def _count(self, row: Row) -> int:
        key = row["application"], row["kind"]
        self._runs[key] = self._runs.get(key, 0) + 1
        return self._runs[key]

    def _load(self) -> None:
        try:
            whole = self.path.read_bytes()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InputError(f"cannot read {self.path}: {error.strerror}") from error
        complete = whole[: whole.rfind(b"\n") + 1]
        if len(complete) < len(whole):
            os.truncate(self.path, len(complete))
        for number, text in enumerate(complete.splitlines(), start=1):
            try:
                line = msgspec.json.decode(text, type=_Line)
                rows = TRIALS.check(_frame(TRIALS, line.trials), "a trial").to_dicts()
                runs = SOLO.check(_frame(SOLO, line.solo), "a run alone").to_dicts()
            except (msgspec.DecodeError, InputError, pl.exceptions.PolarsError, TypeError) as error:
                raise InputError(
                    f"{self.path}: line {number}: {one_line(str(error))}; remove the file to do without it"
                ) from error
            self._trials += rows
            self._solo += runs
            for row in runs:
                self._count(row)


def _frame(table: PairsTable, rows: list[Row]) -> pl.DataFrame:
    plain = {**table.schema}
    texts = {name: pl.String for name, dtype in plain.items() if isinstance(dtype, pl.Datetime)}
    is_text = bool(rows) and isinstance(rows[0].get("started"), str)
    frame = pl.DataFrame(rows, schema={**plain, **texts} if is_text else plain, orient="row")
    if is_text:
        frame = frame.with_columns(
            pl.col(name).str.to_datetime("%+", time_unit="us", time_zone="UTC") for name in texts
        )
    # A kill between the tables and the journal's end leaves rows in both.
    return frame.unique(table.key, keep="first", maintain_order=True)
