"""Points that are replayed on a real Slurm: one after another, for one at a time has a host to itself.

A point says what its cluster looks like, and an embedded one of that shape is started for it; or it names the
folder of a cluster that is there. Points of one shape share a cluster. Each replay is a process of its own
(``osub replay``), so that whatever becomes of one, the others run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from deploy.local import GangKind, HoldSetting, LocalCluster, QueueKind, Scheduler, Shape
from foundation.errors import OsubError, UsageError
from foundation.interruption import ENDING
from foundation.one_line import one_line
from foundation.records import load_run
from foundation.records.records_folder import is_finished
from osub.live.forward import is_in_containers
from osub.sweep.points import Outcome, Point, figures_of_run
from osub.sweep.spec import REPLAY_FIELDS, Parameters, Value
from osub.sweep.workers import KILLED, Ended, Failure, Workers
from predictor.programs.dies_with_parent import with_parent
from simulator.model.system import System

RUNS = "runs"
_CLUSTER = "cluster"
_ENDED_S = 60.0
_INTERRUPTED = tuple(128 + number for number in ENDING)
_SHAPE = ("multiplicity", "multiplicity_interactive", "interactive_nodes", "quantum_ms", "virtual")


class SweepReplays:
    """Replays points, those of one cluster together.

    Parameters
    ----------
    folder
        The sweep's: the RUNs are in ``runs``, and while replays run an embedded cluster is in ``cluster``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._own = LocalCluster(folder / _CLUSTER)

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends; the cluster ends with the last, or when the caller stops."""
        try:
            clusters, strange = _by_cluster(points)
            yield from strange
            for where, together in clusters.items():
                for number, point in enumerate(together):
                    yield point, self._replay(point, where, is_first=number == 0)
        finally:
            self._own.down()

    def _replay(self, point: Point, where: Path | Shape, *, is_first: bool) -> Outcome | Failure:
        began = time.monotonic()
        try:
            if isinstance(where, Shape):
                if is_first:
                    self._own.down()
                self._own.up(where)  # also starts again what has died meanwhile
                conf = self._own.folder
            else:
                conf = where
            run = self._folder / RUNS / point.key
            # In containers the RUN of a killed sweep may not have been copied yet.
            is_begun = (run / "run.json").exists() or is_in_containers(conf)
            answer = _replayed(point.parameters, run, conf, resume=is_begun and not isinstance(where, Shape))
            if isinstance(answer, Failure):
                return answer
            return (
                answer
                | figures_of_run(run)
                | {"run": f"{RUNS}/{point.key}", "wall_s": time.monotonic() - began}
            )
        except OsubError as error:
            return {"error": str(error), "wall_s": time.monotonic() - began}


@dataclass(frozen=True, slots=True)
class ByKind:
    """Has simulations run by one team and then replays by another: what is measured wants a calm host."""

    simulations: Workers
    replays: Workers

    def run(self, points: Sequence[Point]) -> Iterator[Ended]:
        """Yield each point as it ends."""
        for team, is_replay in ((self.simulations, False), (self.replays, True)):
            own = [point for point in points if (point.parameters.get("kind") == "replay") is is_replay]
            if own:
                yield from team.run(own)


def shape_of(parameters: Mapping[str, Value]) -> Shape:
    """Return the embedded cluster that a point asks for.

    Raises
    ------
    UsageError
        There is no such cluster.
    """
    system = System.parse(str(parameters["system"]))
    plain = {name: parameters[name] for name in _SHAPE if name in parameters}
    try:
        return Shape(
            nodes=system.nodes,
            cores=system.cores,
            gang=GangKind(str(parameters.get("gang", "none"))),
            hold=HoldSetting(str(parameters.get("hold", "yield"))),
            queues=QueueKind(str(parameters.get("queues", "sq"))),
            scheduler=Scheduler(str(parameters.get("scheduler", "backfill"))),
            **plain,  # type: ignore[arg-type]  # the specification has checked them
        )
    except (ValueError, TypeError) as error:
        raise UsageError(f"no cluster can be made of a point: {one_line(str(error))}") from error


def _by_cluster(points: Sequence[Point]) -> tuple[dict[Path | Shape, list[Point]], list[Ended]]:
    """Return which points each cluster replays, and those that ask for one that cannot be."""
    found: dict[Path | Shape, list[Point]] = {}
    strange: list[Ended] = []
    for point in points:
        named = point.parameters.get("cluster")
        try:
            where = shape_of(point.parameters) if named is None else Path(str(named))
        except UsageError as error:
            strange.append((point, {"error": str(error), "wall_s": 0.0}))
        else:
            found.setdefault(where, []).append(point)
    return found, strange


def _words(parameters: Parameters) -> list[str]:
    """Return the options of ``osub replay`` for a point."""
    words: list[str] = []
    for name, field in REPLAY_FIELDS.items():
        value, (yes, _, no) = parameters.get(name), str(field.option).partition("/")
        if isinstance(value, bool):
            words += filter(None, [yes if value else no])
        elif value is not None and name not in ("trace", "cluster"):
            words += [yes, str(value)]
    for variable in str(parameters.get("export", "")).split():
        words += ["--export", variable]
    return words


def _replayed(parameters: Parameters, run: Path, cluster: Path, *, resume: bool) -> Outcome | Failure:
    """Replay a point, or go on with what a killed sweep began, and return what the command printed of it."""
    command = [
        *(sys.executable, "-P", "-m", "osub.command", "replay", str(parameters["trace"])),
        *("--out", str(run), "--cluster", str(cluster), "--json"),
    ]
    run.parent.mkdir(parents=True, exist_ok=True)
    if resume:
        done = _ended([*command, "--resume"])
        if done.returncode == 0 and is_finished(run):  # maybe meanwhile, in containers
            return {"completed": load_run(run).jobs["state"].eq("COMPLETED").sum()}
        if done.returncode in (0, *_INTERRUPTED):
            return _outcome(done)
    return _outcome(_ended([*command, *_words(parameters), "--force"]))


def _outcome(done: subprocess.CompletedProcess[str]) -> Outcome | Failure:
    if done.returncode < 0:
        return KILLED
    with suppress(ValueError, AttributeError):
        answer = json.loads(done.stdout or "null")
        if answer.get("finished") and done.returncode == 0:
            return {"completed": answer["states"].get("COMPLETED", 0)}
        if done.returncode in (0, *_INTERRUPTED):
            return Failure("its replay was interrupted", again=False)
    said = done.stderr.strip().splitlines() or ["it said nothing"]
    return Failure(one_line(said[-1].removeprefix("osub: ").removeprefix("error: ")), again=False)


def _ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; on SIGTERM it detaches from the jobs, which a later sweep follows."""
    with subprocess.Popen(
        [*with_parent(), *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    ) as process:
        try:
            out, err = process.communicate()
        except BaseException:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_ENDED_S)
            process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)
