"""``python -m tests.golden.cut SHARED``: cuts the small set out of the whole logs in ``SHARED``.

A cut keeps header and lines as they are, byte for byte, but for one line that says that it is a cut.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from pathlib import Path

from tests.validation.simulator.test_golden_schedules import KTH_PROCS, flat_easy, pool_jobs

HERE = Path(__file__).parent
GAIA, KTH, LUBLIN = "UniLu-Gaia-2014-1", "KTH-SP2-1996-2.1-cln", "lublin_256"
EAGLE = "eagle_sample_1000"
GAIA_FROM_S, GAIA_DAYS = 1_212_255, 7.7
FIRST = {KTH: 3000, LUBLIN: 3000}
EAGLE_EVERY = 3
NOTE = "; Note: A CUT of the log, for tests of osub (tests/golden/README.md)\n"

Fields = list[str]


def cut_log(source: Path, keep: Callable[[int, Fields], bool]) -> str:
    """Return header and kept lines of an SWF log; ``keep`` has a job's place and its fields."""
    header, lines, place = [], [], 0
    with gzip.open(source, "rt", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith(";"):
                header.append(line)
                continue
            if keep(place, line.split()):
                lines.append(line)
            place += 1
    return "".join((*header, NOTE, *lines))


def cut_schedule(schedule: Path, log: str) -> str:
    """Return the starts that no job after the cut can have changed: those up to its last arrival."""
    jobs = [line.split() for line in log.splitlines() if not line.startswith(";")]
    last_s = int(jobs[-1][1])
    with gzip.open(schedule, "rt", encoding="utf-8") as stream:
        head, *rows = stream.read().splitlines()
    known = {job[0] for job in jobs}
    kept = [row for row in rows if row.split(",")[0] in known and int(row.split(",")[1]) <= last_s]
    return "\n".join((head, *kept)) + "\n"


def schedule_of(log: Path, procs: int) -> str:
    """Return the starts, up to the last arrival, by the written rules with one pass an instant."""
    jobs = pool_jobs(log, procs)
    starts = flat_easy(jobs, procs, together=True)
    rows = [f"{number},{start_s}" for number, start_s in sorted(starts.items()) if start_s <= jobs[-1][1]]
    return "\n".join(("trace_job,start_s", *rows)) + "\n"


def write(name: str, text: str) -> None:
    """Write the same bytes for the same text."""
    with (HERE / name).open("wb") as stream, gzip.GzipFile("", "wb", 9, stream, mtime=0) as packed:
        packed.write(text.encode())


def main() -> None:
    """Cut everything."""
    shared = Path(sys.argv[1])
    traces = shared / "traces"
    end_s = GAIA_FROM_S + GAIA_DAYS * 86_400
    gaia = cut_log(traces / f"{GAIA}.swf.gz", lambda _, job: GAIA_FROM_S <= int(job[1]) <= end_s)
    write(f"{GAIA}.swf.gz", gaia)
    logs = {
        name: cut_log(traces / f"{name}.swf.gz", lambda place, _, count=count: place < count)  # type: ignore[misc]
        for name, count in FIRST.items()
    }
    for name, text in logs.items():
        write(f"{name}.swf.gz", text)
    write("easy_KTH-SP2_100.csv.gz", cut_schedule(shared / "golden" / "easy_KTH-SP2_100.csv.gz", logs[KTH]))
    write("easy_KTH-SP2_100_together.csv.gz", schedule_of(HERE / f"{KTH}.swf.gz", KTH_PROCS))
    with gzip.open(traces / f"{EAGLE}.csv.gz", "rt", encoding="utf-8", newline="") as stream:
        head, *rows = stream
    write(f"{EAGLE}.csv.gz", "".join((head, *rows[::EAGLE_EVERY])))
    (HERE / "thesis_table_7_8.csv").write_bytes((shared / "golden" / "thesis_table_7_8.csv").read_bytes())


if __name__ == "__main__":
    main()
