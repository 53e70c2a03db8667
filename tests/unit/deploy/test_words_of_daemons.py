"""What a daemon that ended is quoted with: the reason, not only that there was one."""

from __future__ import annotations

from pathlib import Path

import pytest

from deploy.local.daemons import last_words
from deploy.local.layout import make_layout
from deploy.shape import Shape

FATAL = "slurmctld: fatal: Unable to process configuration file"


@pytest.mark.parametrize(
    ("logged", "told"),
    [
        (
            f"slurmctld: error: _parse_next_key: Parsing error at unrecognized key: Foo\n{FATAL}\n",
            f"{FATAL} (_parse_next_key: Parsing error at unrecognized key: Foo)",
        ),
        (
            f'slurmctld: error: ReturnToService value "banana" is not a valid number\n{FATAL}\n',
            f'{FATAL} (ReturnToService value "banana" is not a valid number)',
        ),
        (
            "slurmctld: error: no plugin for x\nslurmctld: fatal: failed to initialize priority\n",
            "slurmctld: fatal: failed to initialize priority (no plugin for x)",
        ),
        (
            "slurmctld: error: nothing is stored\nslurmctld: fatal: Can't find plugin for select/x\n",
            "slurmctld: fatal: Can't find plugin for select/x",
        ),
        ("", "it logged nothing"),
    ],
)
def test_last_words_name_the_reason(tmp_path: Path, logged: str, told: str) -> None:
    layout = make_layout(tmp_path, tmp_path, Shape(nodes=1, cores=1), ((0,),))
    layout.logs.mkdir()
    (layout.logs / "slurmctld.out").write_text(logged)
    assert last_words(layout, "slurmctld") == told
