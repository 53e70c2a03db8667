"""The words for sbatch, and which of a site's own options may go beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import UsageError
from foundation.slurm import SubmitRequest
from foundation.slurm.run_command import check_options, sbatch_options


def test_what_a_site_asks_for_is_passed_on() -> None:
    request = SubmitRequest(
        script="#!/bin/sh\n",
        name="j",
        account="physics",
        qos="long",
        reservation="tuesday",
        no_requeue=True,
        oversubscribe=True,
        tasks_per_core=1,
        memory_per_node_mib=300,
        options=("constraint=fast", "contiguous"),
    )
    assert {
        "--account=physics",
        "--qos=long",
        "--reservation=tuesday",
        "--no-requeue",
        "--oversubscribe",
        "--ntasks-per-core=1",
        "--mem=300M",
        "--constraint=fast",
        "--contiguous",
    } <= set(sbatch_options(request))


def test_nothing_is_said_of_what_no_one_asked_for() -> None:
    said = " ".join(sbatch_options(SubmitRequest(script="#!/bin/sh\n", name="j")))
    for word in ("account", "qos", "reservation", "requeue", "oversubscribe", "per-core", "mem"):
        assert word not in said


@pytest.mark.parametrize(
    ("path", "said"),
    [("/a/1.out", "/a/1.out"), ("/a%j%/x", "/a%%j%%/x"), ("/a\\b%j", "/a\\\\b%j"), (None, "/dev/null")],
)
def test_slurm_expands_nothing_in_the_path_of_an_output(path: str | None, said: str) -> None:
    request = SubmitRequest(script="#!/bin/sh\n", name="j", output=None if path is None else Path(path))
    assert f"--output={said}" in sbatch_options(request)


@pytest.mark.parametrize(
    "option",
    ["constraint=a&b", "requeue", "comment=gangd=off", "nodelist=n[1-2]", "mail-user=a@b", "gres=gpu:1"],
)
def test_a_site_s_own_option_is_taken(option: str) -> None:
    assert check_options([option]) == (option,)


@pytest.mark.parametrize(
    ("option", "why"),
    [
        ("partition=x", "use --partition"),
        ("part=x", "reads it as --partition"),
        ("array=1-4", "one job"),
        ("hetjob", "not heterogeneous"),
        ("time=5", "comes from the trace"),
        ("exclusive", "share cores"),
        ("-p", "long option"),
        (":", "long option"),
        ("comment=a\nb", "long option"),
        ("", "long option"),
        ("Wrap=true", "long option"),
        ("comment=" + "x" * 2000, "long option"),
    ],
)
def test_what_would_change_a_submission_is_refused_in_one_line(option: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as caught:
        check_options([option])
    assert "\n" not in str(caught.value)
