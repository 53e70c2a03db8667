"""``python -m tests.bench [--all | --tiny] [--only AREA] [--history FILE]``: what ``make bench`` runs."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from foundation.version import VERSION
from tests.bench.areas import AREAS, Area, areas_named
from tests.bench.figures import Row, rows_of, table
from tests.bench.history import append, default_file, read, this_run
from tests.bench.page import draw
from tests.fixtures.bench import SIZE, TARGET, Size

ROOT = Path(__file__).parents[2]


def options() -> argparse.Namespace:
    """Read the command line."""
    minutes = sum(area.minutes for area in AREAS)
    parser = argparse.ArgumentParser(
        prog="make bench", description=f"Figures of all areas: about {minutes:.0f} min."
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--all", action="store_const", const="all", dest="size", help="long ones, an hour")
    how.add_argument(
        "--tiny", action="store_const", const="tiny", dest="size", help="that each runs, no figures"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="AREA", help="this area; may be repeated"
    )
    parser.add_argument("--history", type=Path, default=default_file(), help=f"default: {default_file()}")
    parser.add_argument("--no-history", action="store_true", help="print the table, and keep nothing")
    parser.set_defaults(size="quick")
    found = parser.parse_args()
    try:
        areas_named(tuple(found.only))
    except ValueError as error:
        parser.error(str(error))
    return found


def measured(area: Area, size: Size) -> tuple[list[Row], bool]:
    """Run an area's benchmarks; returns their results, and whether they ended well."""
    with tempfile.TemporaryDirectory(prefix="osub-bench-") as folder:
        target = Path(folder, "figures.jsonl")
        environment = os.environ | area.sizes.get(size, {}) | {TARGET: str(target), SIZE: size}
        words = ("-m", "benchmark", "-q", "-s", "-p", "no:cacheprovider", "--no-header")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, *area.tests], cwd=ROOT, env=environment, check=False
        )
        lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
    return rows_of(lines), done.returncode == 0


def commit() -> str:
    """Return the commit that is measured; a plus marks changes that are in none."""
    words = ("describe", "--always", "--dirty=+", "--exclude=*")
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def main() -> int:
    """Measure, print the table, keep it, draw the history."""
    asked = options()
    load = os.getloadavg()[0]
    rows: list[Row] = []
    failed = []
    for area in areas_named(tuple(asked.only)):
        print(f"== {area.name}", flush=True)
        found, is_well = measured(area, asked.size)
        rows += found
        if not is_well or not found:
            failed.append(area.name)
    print(f"\n\n{table(rows)}")
    if rows and asked.size != "tiny" and not asked.no_history:
        run = this_run(VERSION, commit(), asked.size, load, rows)
        append(asked.history, run)
        own = [one for one in read(asked.history) if (one.host, one.size) == (run.host, run.size)]
        page = asked.history.with_suffix(".html")
        draw(page, own)
        print(f"kept in {asked.history}; {page} draws {len(own)} runs of this host")
    if failed:
        print(f"without figures: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
