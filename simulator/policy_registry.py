"""The built-in policies: the one list in which a new family is entered."""

from __future__ import annotations

from foundation.errors import UsageError
from simulator.hybrid import hybrid_family
from simulator.policies import malleable_family, slurm_family
from simulator.policies.easy.plain_policies import Easy, EasyElsewhere, EasyNcs, Fcfs
from simulator.policies.policy_family import Family, PolicyOption, choice
from simulator.timeshare import timeshare_family

FAMILIES: tuple[Family, ...] = (
    Family(
        name="fcfs",
        help="first come, first served: a job that does not fit holds up the rest",
        make=lambda _: Fcfs(),
    ),
    Family(
        name="easy",
        help="EASY backfilling: a later job may start if the head of the queue starts no later for it",
        make=lambda _: Easy(),
    ),
    Family(
        name="easy-elsewhere",
        help="EASY in which a job that would delay the head is tried again, off the head's nodes",
        make=lambda _: EasyElsewhere(),
    ),
    Family(
        name="easy-ncs",
        help="backfilling as the thesis's simulator NCS has it: nodes are refused one by one, by a plan",
        instants="one-by-one",
        make=lambda values: EasyNcs(*(values[name] == "yes" for name in ("victims", "bounds", "ends"))),
        options=(
            choice(
                "victims",
                ("yes", "no"),
                "refuse who raises the multiplicity of a job that would end by the head's start",
            ),
            choice(
                "bounds",
                ("yes", "no"),
                "after such a refusal refuse all of the pass that are as large and as long",
            ),
            choice("ends", ("yes", "no"), "make no pass while another job ends at the same instant"),
        ),
    ),
    slurm_family.FAMILY,
    *malleable_family.FAMILIES,
    *hybrid_family.FAMILIES,
    *timeshare_family.FAMILIES,
)


def family_of(name: str) -> Family:
    """Return the family of that name.

    Raises
    ------
    UsageError
        There is none.
    """
    for family in FAMILIES:
        if family.name == name:
            return family
    names = ", ".join(family.name for family in FAMILIES)
    raise UsageError(f"unknown policy {name!r}: choose {names} or FILE.py:NAME")


def listing() -> str:
    """Return one line a policy, and one an option; options that several policies have are listed once."""
    lines: list[str] = []
    listed: dict[tuple[PolicyOption, ...], str] = {}
    for family in FAMILIES:
        first = listed.setdefault(family.options, family.name)
        if not family.options or first == family.name:
            lines += family.lines()
        else:
            lines += [family.lines()[0], f"  options as {first}"]
    return "\n".join(lines)
