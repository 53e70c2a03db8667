"""What osub stands on: told on a page, and free to be stood on."""

from __future__ import annotations

import re

import pytest

from tests.fixtures.licences import GRANTED, PAGE, Package, licence_of, locked, packages, row, terms


def test_the_page_is_what_the_locked_packages_say() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    told = {line for line in lines if re.match(r"\| [a-z0-9]", line) and not line.startswith("| package")}
    again = "run: python -m tests.fixtures.licences"
    # another Python may do without a package of the page, and then it is not looked into here
    assert {row(package) for package in packages()} <= told, again
    assert {line.split()[1] for line in told} == locked(), again


def test_no_package_has_terms_that_do_not_go_with_apache_2() -> None:
    assert [package for package in packages() if not goes(package)] == []


def goes(package: Package) -> bool:
    found = terms(package.licence)
    return bool(found & GRANTED) if " OR " in package.licence else bool(found) and found <= GRANTED


@pytest.mark.parametrize(
    "licence", ["GPL-3.0-only", "MIT AND GPL-2.0-only", "AGPL-3.0-or-later", "not stated"]
)
def test_terms_that_bind_the_whole_program_would_be_seen(licence: str) -> None:
    assert not terms(licence) <= GRANTED


def test_a_compute_node_is_distinguished_from_a_developer() -> None:
    groups = {package.name: package.group for package in packages()}
    assert groups["pyzmq"] == groups["msgspec"] == groups["clustershell"] == groups["pyyaml"] == "agent"
    assert groups["numba"] == "sim"
    assert groups["ruff"] == "dev"
    assert licence_of("clustershell") == "LGPL-2.1-or-later"
