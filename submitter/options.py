"""What a replay was asked for, kept in the RUN so that ``--resume`` does the same."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path

from osub.errors import InputError
from osub.records import GangSettings, RunInfo
from osub.records.run_info import Option
from submitter.plan import Oversize, PlanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """How to replay a trace.

    Attributes
    ----------
    start_s, length_s
        Part of the trace to replay, in its own seconds; None: from the first submission, to the end.
    speedup
        What every time of the trace is divided by.
    interactive_queue
        SWF queue of interactive jobs, None for none.
    seed
        For the busy and idle periods of interactive jobs that the trace gives none.
    oversize
        What to do with jobs that can never run.
    use_memory
        Whether Slurm is asked for the trace's memory.
    gang
        Who takes turns on shared cores; under gangd the requested times stand.
    pin
        Whether tasks bind themselves to Slurm's cores (embedded nodes of several cores).
    calibration
        rrba's stored step times.
    label, trial
        Name for tables, and number of the repetition.
    run_id
        Part of the names of the jobs in Slurm.
    """

    start_s: float | None = None
    length_s: float | None = None
    speedup: float = 1.0
    interactive_queue: int | None = 0
    seed: int = 1
    oversize: Oversize = Oversize.FAIL
    use_memory: bool = True
    gang: GangSettings = field(default_factory=GangSettings)
    pin: bool = False
    calibration: Path | None = None
    label: str | None = None
    trial: int = 1
    run_id: str = field(default_factory=lambda: secrets.token_hex(4))

    def stored(self) -> dict[str, Option]:
        """Return what ``restored`` needs, as options of ``run.json``."""
        return {
            "run_id": self.run_id,
            "start_s": self.start_s,
            "length_s": self.length_s,
            "interactive_queue": self.interactive_queue,
            "oversize": str(self.oversize),
            "use_memory": self.use_memory,
            "pin": self.pin,
            "calibration": None if self.calibration is None else str(self.calibration),
        }

    def plan_options(self, multiplicity: int) -> PlanOptions:
        """Return how the plan is made on a cluster of this multiplicity."""
        return PlanOptions(
            interactive_queue=self.interactive_queue,
            request_factor=1 if self.gang.kind == "osub" else multiplicity,
            oversize=self.oversize,
            use_memory=self.use_memory,
        )


def restored(info: RunInfo) -> ReplayOptions:
    """Return the options of a RUN that a replay began.

    Raises
    ------
    InputError
        It is no such RUN.
    """
    options = info.options
    run_id, queue, calibration = (options.get(k) for k in ("run_id", "interactive_queue", "calibration"))
    if info.kind != "real" or not isinstance(run_id, str):
        raise InputError(f"run {info.label} was not begun by a replay: it can't be resumed")
    return ReplayOptions(
        speedup=info.speedup,
        interactive_queue=queue if isinstance(queue, int) else None,
        seed=info.seeds.get("interactive", 1),
        oversize=Oversize(str(options.get("oversize", Oversize.FAIL))),
        use_memory=bool(options.get("use_memory", True)),
        gang=info.gang,
        pin=bool(options.get("pin", False)),
        calibration=Path(calibration) if isinstance(calibration, str) else None,
        label=info.label,
        trial=info.trial,
        run_id=run_id,
    )
