"""A release: its version, notes and licences."""

from __future__ import annotations

import re

import pytest

from deploy.compose.image import _FOLDERS as IMAGE_FOLDERS
from foundation.version import VERSION
from tests.fixtures.installed import PACKAGES, PROJECT, ROOT
from tests.fixtures.licences import GRANTED, PAGE, Package, licence_of, locked, packages, read_table, terms

RELEASE = re.compile(r"## \[(\d+\.\d+\.\d+)\] - (\d{4}-\d\d-\d\d)")


def test_the_version_is_written_in_one_place() -> None:
    assert "version" not in PROJECT["project"]
    assert PROJECT["project"]["dynamic"] == ["version"]
    pattern = PROJECT["tool"]["hatch"]["version"]["pattern"]
    source = (ROOT / PROJECT["tool"]["hatch"]["version"]["path"]).read_text(encoding="utf-8")
    found = re.search(pattern, source)
    assert found is not None
    assert found["version"] == VERSION


def test_the_citation_names_the_same_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {VERSION}" in lines


def test_the_newest_release_of_the_changelog_is_this_version_and_each_is_older_than_the_one_above() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heads = re.findall(r"^## .*$", text, re.MULTILINE)
    assert heads[0] == "## [Unreleased]"
    releases = [RELEASE.fullmatch(head) for head in heads[1:]]
    assert all(releases), heads
    found = [(tuple(map(int, one[1].split("."))), one[2]) for one in releases if one]
    assert found == sorted(found, reverse=True)
    assert ".".join(map(str, found[0][0])) == VERSION


def test_every_package_says_that_it_is_typed_and_is_in_the_images() -> None:
    for package in PACKAGES:
        assert (ROOT / package / "py.typed").is_file(), f"{package} has no py.typed"
    assert sorted(PACKAGES) == sorted(IMAGE_FOLDERS)
    assert "COPY . /source/" in (ROOT / "deploy/compose/Containerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for package in PACKAGES:
        assert f"!{package}" in ignored


def test_the_page_is_what_the_locked_packages_say() -> None:
    reported = read_table(PAGE.read_text(encoding="utf-8"))
    again = "run: python -m tests.fixtures.licences"
    # another Python may do without a package of the page, and then it is not looked into here
    assert set(packages()) <= reported, again
    assert {package.name for package in reported} == locked(), again


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
    assert (groups["numba"], groups["ruff"]) == ("sim", "dev")
    assert licence_of("clustershell") == "LGPL-2.1-or-later"
