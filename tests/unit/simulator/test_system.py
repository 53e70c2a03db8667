"""Systems, queues and shares as a user writes them."""

from __future__ import annotations

import pytest

from foundation.errors import UsageError
from simulator.model.system import System, multiple_queues, nodes_of_share
from simulator.setting_choices import setting_of
from simulator.simulation_spec import SimulationSpec


@pytest.mark.parametrize(
    "text", ["", "150", "N150", "C12", "n150c12", "N0C12", "N150C0", "N150C12 ", "N1.5C2", "N-1C2"]
)
def test_what_is_no_system_is_reported(text: str) -> None:
    with pytest.raises(UsageError, match="is not a system"):
        System.parse(text)


def test_a_system_reads_and_writes_the_same() -> None:
    assert System.parse("N150C12") == System(150, 12)
    assert str(System(150, 12)) == "N150C12"


@pytest.mark.parametrize(
    ("share", "nodes"),
    [
        ("1%", 2),
        ("3%", 5),
        ("5%", 8),
        ("7%", 11),
        ("10%", 15),
        ("12%", 18),
        ("0.1%", 1),
        ("0.05", 8),
        ("0.3%", 1),
    ],
)
def test_a_share_is_the_nearest_whole_number_of_nodes_halves_up_and_at_least_one(
    share: str, nodes: int
) -> None:
    assert nodes_of_share(System(150, 12), share) == nodes


@pytest.mark.parametrize("share", ["", "%", "five", "0", "0%", "100%", "1", "-5%", "nan", "inf"])
def test_what_is_no_share_is_reported(share: str) -> None:
    with pytest.raises(UsageError, match="is not a share"):
        nodes_of_share(System(150, 12), share)


def test_interactive_jobs_get_the_first_nodes() -> None:
    queues = multiple_queues(System(12, 12), 2, multiplicity=1, multiplicity_interactive=4)
    assert (queues.interactive.first, queues.interactive.nodes, queues.interactive.multiplicity) == (0, 2, 4)
    assert (queues.batch.first, queues.batch.nodes, queues.batch.multiplicity) == (2, 10, 1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (SimulationSpec(system="N4C4", policy="sjf"), "unknown policy 'sjf'"),
        (SimulationSpec(system="N4C4", placement="best"), "unknown placement 'best'"),
        (SimulationSpec(system="N4C4", multiplicity=9), "multiplicity of 9"),
        (SimulationSpec(system="N4C4", multiplicity=0), "multiplicity of 0"),
        (SimulationSpec(system="N4C4", queues="pq"), "unknown queues 'pq'"),
        (SimulationSpec(system="N4C4", queues="mq"), "needs either"),
        (SimulationSpec(system="N4C4", queues="mq", interactive_nodes=4), "choose 1 to 3"),
        (
            SimulationSpec(system="N4C4", queues="mq", interactive_nodes=1, interactive_share="5%"),
            "needs either",
        ),
        (
            SimulationSpec(system="N4C4", queues="mq", interactive_nodes=1, multiplicity_interactive=9),
            "multiplicity of 9",
        ),
        (SimulationSpec(system="N4C4", interactive_nodes=1), "go with queues mq"),
        (SimulationSpec(system="N4C4", overhead="0.9"), "C_o is at least 1"),
        (SimulationSpec(system="N4C4", overhead="much"), "is not an overhead"),
        (SimulationSpec(system="N4C4", memory_gib=0), "must be positive"),
        (SimulationSpec(system="N4C4", node_noise=0.5), "node noise"),
    ],
)
def test_settings_that_cannot_be_are_reported(words: SimulationSpec, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        setting_of(words)
