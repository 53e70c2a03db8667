"""Nothing imports in a circle: no module, no folder; not even for types or late, in a function."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tests.fixtures import structure

LAYERS_INSIDE = frozenset({"workloads"})
"""Packages of which a folder has layers of its own, with others in between."""


@pytest.fixture(scope="module")
def edges() -> structure.Edges:
    return structure.imports_of(structure.packages_of(Path(__file__).parents[3]))


def test_every_package_is_looked_at(edges: structure.Edges) -> None:
    assert {"osub", "foundation", "gangd", "simulator", "workloads"} <= set(edges)
    assert "foundation.errors" in edges["foundation.trust"]


def test_no_modules_import_each_other_in_a_circle(edges: structure.Edges) -> None:
    assert structure.circle_in(edges) is None


def test_no_folders_import_each_other_in_a_circle(edges: structure.Edges) -> None:
    assert structure.circle_in(structure.by_folder(edges)) is None


def test_what_lies_side_by_side_imports_in_no_circle(edges: structure.Edges) -> None:
    found = {package: structure.circle_in(inside) for package, inside in structure.siblings(edges)}
    assert {package for package, circle in found.items() if circle} <= LAYERS_INSIDE, found


def test_a_circle_is_found_however_long_and_reported_in_the_order_of_imports() -> None:
    edges = {"a": frozenset({"b"}), "b": frozenset({"c"}), "c": frozenset({"a"}), "d": frozenset({"a"})}
    circle = structure.circle_in(edges)
    assert circle is not None
    assert circle[0] == circle[-1]
    assert all(other in edges[one] for one, other in pairwise(circle))
    assert structure.circle_in({**edges, "c": frozenset({"d"})}) is not None
    assert structure.circle_in({**edges, "c": frozenset()}) is None


def test_folders_are_in_a_circle_although_no_modules_are() -> None:
    edges: structure.Edges = {
        "r": frozenset(), "r.one": frozenset(), "r.one.a": frozenset({"r.two.a"}),
        "r.one.b": frozenset(), "r.two": frozenset(), "r.two.a": frozenset(),
        "r.two.b": frozenset({"r.one.b"}),
    }  # fmt: skip
    assert structure.circle_in(edges) is None
    assert structure.circle_in(structure.by_folder(edges)) is not None
    assert [package for package, inside in structure.siblings(edges) if structure.circle_in(inside)] == ["r"]


def test_a_module_next_to_a_folder_counts_by_itself() -> None:
    edges: structure.Edges = {
        "r": frozenset(),
        "r.main": frozenset({"r.one.a"}),
        "r.words": frozenset(),
        "r.one": frozenset(),
        "r.one.a": frozenset({"r.words"}),
    }
    assert structure.circle_in(structure.by_folder(edges)) is None
    assert not [package for package, inside in structure.siblings(edges) if structure.circle_in(inside)]
