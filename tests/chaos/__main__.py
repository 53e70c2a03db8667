"""``python -m tests.chaos --faults 200 --seed 1``: the campaign from the command line."""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from deploy.local import HoldSetting
from tests.chaos.broken import Broken
from tests.chaos.campaign import Campaign, Outcome, draw
from tests.chaos.company import side_by_side
from tests.chaos.fault import Fault
from tests.chaos.faults import ALL, GROUPS
from tests.chaos.report import Summary, line, markdown
from tests.chaos.stage import PARTS, Stage, usable
from tests.chaos.troupe import Troupe


def play(
    kinds: Sequence[type[Fault]],
    seed: int,
    dice: random.Random,
    *,
    brief: bool,
    quiet: bool = False,
    hold: HoldSetting = HoldSetting.FREEZE,
    parts: Sequence[str] = (),
) -> Summary:
    """Run faults of these kinds on a stage of their own and sum up."""

    def say(outcome: Outcome) -> None:
        if not quiet:
            print(line(outcome), flush=True)

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="osub-chaos-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with Stage(Path(folder), dice, hold, parts) as stage:
            troupe = Troupe(stage)
            troupe.settle()
            campaign = Campaign(stage, troupe, dice, brief=brief, say=say)
            end = None
            try:
                campaign.run(kinds)
                troupe.farewell()
            except KeyboardInterrupt:
                end = "interrupted"
            except Broken as error:
                end = str(error)
            ended = {str(state): count for state, count in troupe.ended.items()}
            return Summary(
                seed, campaign.outcomes, ended, troupe.cancelled, troupe.worst_gone_s,
                time.monotonic() - began_s, end, hold=hold.value, parts=parts,
            )  # fmt: skip


def _leave(number: int, _frame: object) -> None:
    raise KeyboardInterrupt(f"signal {number}")  # everything is ended and thawed on the way out


def _passed_on(options: argparse.Namespace) -> list[str]:
    """Return the options that are the same for all stages."""
    words = ["--hold", options.hold, *(["--brief"] if options.brief else [])]
    words += [f"--with={part}" for part in options.parts]
    for name in ("only", "group"):
        if getattr(options, name) is not None:
            words += [f"--{name}", getattr(options, name)]
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="osub-chaos", description="Faults against gangd on a real Slurm.")
    parser.add_argument("--faults", type=int, default=200, metavar="N", help="how many (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of everything drawn (%(default)s)")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the table here too")
    parser.add_argument("--only", metavar="WORD", help="only kinds with this word in their name")
    parser.add_argument("--group", choices=sorted(GROUPS), help="only kinds of one group")
    parser.add_argument("--brief", action="store_true", help="each fault as short as it can be")
    parser.add_argument(
        "--hold",
        choices=[*HoldSetting],
        default=HoldSetting.FREEZE.value,
        help="how gangd holds jobs (%(default)s)",
    )
    parser.add_argument(
        "--with", dest="parts", action="append", choices=[*PARTS], default=[],
        help="a part of gangd that is off by default, once for each",
    )  # fmt: skip
    parser.add_argument(
        "--stages", type=int, default=1, metavar="K", help="clusters side by side (%(default)s)"
    )
    parser.add_argument(
        "--outcomes", type=Path, metavar="FILE", help="write the outcomes as JSON and no table"
    )
    options = parser.parse_args(arguments)
    why = usable()
    if why is not None:
        print(f"osub-chaos: {why}", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    dice = random.Random(options.seed)
    chosen = GROUPS[options.group] if options.group else ALL
    kinds = [kind for kind in chosen if options.only is None or options.only in kind.name]
    if not kinds:
        parser.error(f"no kind has {options.only} in its name; kinds: {', '.join(k.name for k in ALL)}")
    if options.stages > 1:
        summary = side_by_side(options.stages, options.faults, options.seed, _passed_on(options))
    else:
        summary = play(
            draw(kinds, options.faults, dice), options.seed, dice, brief=options.brief,
            hold=HoldSetting(options.hold), parts=options.parts,
        )  # fmt: skip
    if options.outcomes:
        options.outcomes.write_bytes(msgspec.json.encode(summary))
        return 0 if summary.is_clean else 1
    text = markdown(summary)
    print(text)
    if options.report:
        options.report.write_text(text)
    return 0 if summary.is_clean else 1


if __name__ == "__main__":
    sys.exit(main())
