from __future__ import annotations

from pathlib import Path

import pytest

from foundation.errors import InputError
from workloads.exchange.fields import Machines, Unit
from workloads.exchange.simgrid_platform import read_platform

HOSTS = '<cluster id="c" prefix="a" suffix="" radical="{}" speed="1Gf" bw="1GBps" lat="0us" core="4"/>'


def platform(folder: Path, inside: str, before: str = "") -> Path:
    path = folder / "p.xml"
    path.write_text(
        f"<?xml version='1.0'?>\n{before}<platform version=\"4.1\"><zone id='z'>{inside}</zone></platform>"
    )
    return path


def test_hosts_that_compute_are_nodes(tmp_path: Path) -> None:
    inside = (
        HOSTS.format("0-3,7")
        + '<host id="n" speed="1Gf" core="4"/>'
        + '<host id="m" speed="1Gf"><prop id="role" value="master"/></host>'
        + '<host id="b" speed="0Gf"><prop id="batch_system" value="true"/></host>'
        + '<host id="f" speed="0Gf"><prop id="pfs_host" value="true"/></host>'
    )
    doctype = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">\n'
    assert read_platform(platform(tmp_path, inside, doctype)) == Machines(6, 4, Unit.NODE)


@pytest.mark.parametrize(
    ("inside", "what"),
    [
        ("", "has 0 hosts that compute"),
        (HOSTS.format("3-1"), "cluster 'c': radical: '3-1' is no list such as 0-3,7"),
        (HOSTS.format("0-999999999"), "has 1,000,000,000 hosts that compute"),
        (HOSTS.format("x" * 65_536), "cluster 'c': radical: 'xxx"),
        ('<host id="n" core="-1"/>', "host 'n': core: '-1' is no number of cores"),
        ('<host id="n" core="2"/><host id="o" core="3"/>', "host 'o': core: 3 cores, and 'n' has 2"),
        ("<host", "is no XML"),
        (
            '<host id="n"><prop id="osub_system" value="N2C2"/><prop id="osub_unit" value="core"/></host>',
            "N2C2 by core does not have 1 host of 1",
        ),
        ('<host id="n"><prop id="osub_system" value="N0C0"/></host>', "are no system and unit"),
    ],
)
def test_what_is_no_system_is_reported(tmp_path: Path, inside: str, what: str) -> None:
    path = platform(tmp_path, inside)
    with pytest.raises(InputError) as caught:
        read_platform(path)
    assert str(caught.value).startswith(str(path))
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE p [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
    with pytest.raises(InputError, match="an entity"):
        read_platform(platform(tmp_path, "<host id='&b;'/>", bomb))


def test_what_is_no_platform_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "p.xml"
    with pytest.raises(InputError, match="cannot read"):
        read_platform(path)
    path.write_text("<html/>")
    with pytest.raises(InputError, match="is no platform of SimGrid: it begins with 'html'"):
        read_platform(path)
