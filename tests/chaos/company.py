"""Several campaigns side by side, each in a process and on a stage of its own, as one campaign.

A fault mostly waits: for leases, for Slurm, for the next turn. Stages share the host's CPUs and nothing
else, so a few of them take little longer than one; and each suffers from the others' load as from a busy
host.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from tests.chaos.report import Summary


def side_by_side(stages: int, faults: int, seed: int, words: Sequence[str]) -> Summary:
    """Run ``faults`` faults on ``stages`` stages; an interrupt ends all of them in order.

    words: further options of the command, for all of them.
    """
    shares = [faults // stages + (place < faults % stages) for place in range(stages)]
    with tempfile.TemporaryDirectory(prefix="osub-chaos-") as folder:
        outcomes = [Path(folder, f"{place}.json") for place in range(stages)]
        crew = [
            subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.chaos", *words),
                    *("--faults", str(share), "--seed", str(seed * 1000 + place)),
                    *("--outcomes", str(outcomes[place])),
                ],
                stdout=subprocess.PIPE,
                text=True,
            )
            for place, share in enumerate(shares)
        ]
        tellers = [threading.Thread(target=_retell, args=(place, one)) for place, one in enumerate(crew, 1)]
        for teller in tellers:
            teller.start()
        try:
            codes = [one.wait() for one in crew]
        except KeyboardInterrupt:
            for one in crew:
                one.send_signal(signal.SIGINT)
            codes = [one.wait() for one in crew]
        for teller in tellers:
            teller.join()
        found = [
            msgspec.json.decode(path.read_bytes(), type=Summary)
            if path.exists()
            else Summary(seed, (), {}, 0, 0.0, 0.0, f"stage {place} ended with code {code}")
            for place, (path, code) in enumerate(zip(outcomes, codes, strict=True), 1)
        ]
    return together(seed, found)


def together(seed: int, found: Sequence[Summary]) -> Summary:
    """Return the summary of all campaigns; faults are numbered anew, stage by stage."""
    outcomes = [one for summary in found for one in summary.outcomes]
    ended: Counter[str] = Counter()
    for summary in found:
        ended.update(summary.ended)
    return Summary(
        seed,
        [replace(one, number=number) for number, one in enumerate(outcomes, 1)],
        dict(ended),
        sum(summary.cancelled for summary in found),
        max(summary.worst_gone_s for summary in found),
        max(summary.wall_s for summary in found),
        "; ".join(summary.end for summary in found if summary.end) or None,
        stages=len(found),
        hold=found[0].hold,
        parts=found[0].parts,
    )


def _retell(place: int, one: subprocess.Popen[str]) -> None:
    assert one.stdout is not None
    for said in one.stdout:
        print(f"[{place}] {said}", end="", flush=True)
