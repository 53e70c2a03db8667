"""The PAIRS folder while it is being measured: what it had, what comes, and when it is written."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import polars as pl

from foundation.errors import OutputError, UsageError
from foundation.version import VERSION
from predictor.dataset import (
    APPLICATIONS,
    COUNTERS,
    FORMAT_VERSION,
    SOLO,
    TRIALS,
    About,
    Kind,
    Pairs,
    Source,
    read_pairs,
    write_pairs,
)
from predictor.measure.measured_host import describe_host
from predictor.measure.pair_trial import Row
from predictor.measure.trial_journal import JOURNAL_NAME, Journal, pair_frame
from predictor.programs.program_catalogue import Application

FLUSH_S = 60.0


class Store:
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
    """

    def __init__(
        self,
        folder: Path,
        applications: Sequence[Application],
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

    def trials_of(self, kind: Kind) -> list[Row]:
        """Return the trials of a kind so far."""
        return self._journal.trials().filter(kind=str(kind)).to_dicts()

    def append(self, trials: list[Row], solo: list[Row], footprints_kib: Mapping[str, int]) -> None:
        """Keep the rows of a trial; the tables are written when a minute has passed."""
        self._journal.append(trials, solo)
        self._footprints.update(footprints_kib)
        if time.monotonic() - self._flushed_s > FLUSH_S:
            self._write()

    def note(self, text: str) -> None:
        """Add a note for readers."""
        if text not in self._notes:
            self._notes.append(text)

    def counted(self, source: Source) -> set[str]:
        """Return the applications that have counters of a source."""
        return set(self._counters.filter(source=str(source)).get_column("application"))

    def add_counters(self, rows: list[Row]) -> None:
        """Add rows of the counters table, in the place of older ones of the same application and source."""
        fresh = COUNTERS.frame(rows)
        old = self._counters.join(
            fresh.select("application", "source").unique(), on=["application", "source"], how="anti"
        )
        self._counters = pl.concat([old, fresh])

    def keep(self) -> None:
        """Write the tables now; the journal stays."""
        self._write()

    def flush(self) -> None:
        """Write the tables, and remove the journal, which they hold now."""
        if self._write():
            self._journal.discard()

    def _write(self) -> bool:
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
            kinds=[Kind(kind) for kind in trials["kind"].unique().sort()],
            counter_sources=[Source(source) for source in self._counters["source"].unique().sort()],
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
