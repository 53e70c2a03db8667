"""Host lists and id lists: what Slurm prints, and what pretends to be a list."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foundation.errors import ClusterError
from foundation.slurm.hosts import MOST_HOSTS, expand_hosts, expand_ids, fold_hosts

NAMES = st.lists(
    st.from_regex(r"\A[a-z]{1,3}-?(0[0-9]|[1-9][0-9]{0,2})\Z"), min_size=1, max_size=30, unique=True
)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("n1", ("n1",)),
        ("n[1-3,7],x9", ("n1", "n2", "n3", "n7", "x9")),
        ("n[08-10]", ("n08", "n09", "n10")),
        ("n[8-10]", ("n8", "n9", "n10")),
        ("r[1-2]n[01-02].a-b", ("r1n01.a-b", "r1n02.a-b", "r2n01.a-b", "r2n02.a-b")),
        ("n[1-2],n2,n1", ("n1", "n2")),
    ],
)
def test_what_slurm_prints_is_expanded_in_its_order(text: str, hosts: tuple[str, ...]) -> None:
    assert expand_hosts(text) == hosts


@given(NAMES)
def test_folded_names_expand_to_themselves(names: list[str]) -> None:
    assert sorted(expand_hosts(fold_hosts(names))) == sorted(names)


@pytest.mark.parametrize(
    "bad",
    [
        "n[1-",
        "n[3-1]",
        "n[]",
        "n1,",
        ",n1",
        "n1,,n2",
        "n1\n",
        "n 1",
        "@all",
        "n1,@x",
        "@x';touch /tmp/x;'",
        "n1!n2",
        "n1&n2",
        "n1^n2",
        "n[1-3/2]",
        "n%s",
        "n*",
        "n[1-x]",
        "n[000x133]",
        "n[1][",
        "-n",
        ".n",
        "n[1-4000000000]",
        "ñ1",
        "n[\u0661-\u0662]",
        "a" * 256,
        "n[1-2]" * 17 + "n1",
    ],
)
def test_what_is_no_host_list_says_so_in_a_line(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a") as caught:
        expand_hosts(bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("bad", ["@g", "n[1-2]", "a,b", "n1\n", "", "@x';touch /tmp/x;'"])
def test_only_host_names_are_folded(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a host name"):
        fold_hosts(["n1", bad])


def test_no_host_list_runs_a_program(tmp_path: Path) -> None:
    proof = tmp_path / "proof"
    for text in (f"@x';touch {proof};'", f"@x';touch${{IFS}}{proof};'", f"n1,@x';touch\t{proof};'"):
        with pytest.raises(ClusterError):
            expand_hosts(text)
        with pytest.raises(ClusterError):
            fold_hosts([text])
    assert not proof.exists()


@pytest.mark.parametrize(
    "text",
    [
        "n[0-99999999]",
        "n[0-999][0-999]",
        "n[0-65534],m[0-9]",
        pytest.param("n," * 70_000 + "n", marks=pytest.mark.slow),
    ],
)
def test_the_size_of_a_host_list_is_bounded_before_it_is_made(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(ClusterError, match="cannot be read as a host list"):
            expand_hosts(text)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()
    assert len(expand_hosts(f"n[1-{MOST_HOSTS}]")) == MOST_HOSTS


def test_id_lists_expand() -> None:
    assert expand_ids("0-3,7") == (0, 1, 2, 3, 7)
    assert expand_ids("65535") == (65_535,)


@pytest.mark.parametrize(
    "bad",
    ["", "1-x", "3-1", "-1", "1,", "+1", " 1", "1_0", "1\n", "\u0661", "0-3000000", "65536", "0-9999999999"],
)
def test_what_is_no_id_list_says_so(bad: str) -> None:
    with pytest.raises(ClusterError, match="cannot be read as a"):
        expand_ids(bad)


def test_the_size_of_an_id_list_is_bounded_before_it_is_made() -> None:
    tracemalloc.start()
    try:
        for bomb in ("0-3000000", ",".join(["0-65535"] * 1000)):
            with pytest.raises(ClusterError, match="an id list"):
                expand_ids(bomb)
        with pytest.raises(ClusterError, match="beyond the 4 ids"):
            expand_ids("0-4", below=4)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
