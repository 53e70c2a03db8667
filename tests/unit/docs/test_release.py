"""What belongs to a release says the same of it: package, citation, changelog, images' sources."""

from __future__ import annotations

import re

from deploy.compose.image import _FOLDERS as IMAGE_FOLDERS
from foundation.version import VERSION
from tests.fixtures.installed import PACKAGES, PROJECT, ROOT

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
    containerfile = (ROOT / "deploy/compose/Containerfile").read_text(encoding="utf-8")
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for package in PACKAGES:
        assert f"COPY {package} /source/{package}" in containerfile
        assert f"!{package}" in ignored
