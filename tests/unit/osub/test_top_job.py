"""``osub top --job``: one job, who shares its cores, and its nodes."""

from __future__ import annotations

import pytest

from foundation.errors import ClusterError
from gangd.controller.controller_status import about
from tests.unit.osub.test_cli_top import status


def test_a_job_is_shown_with_who_shares_its_cores_on_its_nodes() -> None:
    found = about(status(), 14)
    assert [one.job for one in found.jobs] == [12, 13, 14]
    assert [node.node for node in found.nodes] == ["a1"]
    assert [node.node for node in about(status(), 12).nodes] == ["a1", "a2"]


def test_without_a_job_nothing_is_left_out() -> None:
    plain = status()
    assert about(plain, None) is plain


def test_a_job_that_shares_nothing_is_reported() -> None:
    with pytest.raises(ClusterError, match="job 99 shares no cores now"):
        about(status(), 99)
