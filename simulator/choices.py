"""From words on the command line to a setting: system, queues, policy, placement, sharing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from osub.errors import UsageError
from simulator.engine.pool_run import Rules
from simulator.options import Setting
from simulator.placement.plain import SlurmPlacement, ThesisPlacement
from simulator.placement.rule import Placement
from simulator.plugin_files import load_plugin
from simulator.policies.plain import Easy, EasyElsewhere, Fcfs
from simulator.policies.rule import QueuePolicy
from simulator.sharing.model import SharingModel
from simulator.sharing.noise import NoisyNodes
from simulator.sharing.proportional import Proportional
from simulator.slices.model import ExactSlices
from simulator.system import Queues, System, multiple_queues, nodes_of_share, single_queue

_KIB_PER_GIB = 1024 * 1024
_MOST_GIB = 1 << 30

POLICIES = ("fcfs", "easy", "easy-elsewhere")
PLACEMENTS = ("lln", "thesis")
LAYOUTS = ("sq", "mq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A setting as it is written.

    ``policy``, ``placement`` and ``sharing`` may be ``FILE.py:NAME``; with ``quantum_ms`` jobs take turns in
    exact slices, and ``hold`` says how they stand back.
    """

    system: str
    policy: str = "easy"
    multiplicity: int = 1
    queues: str = "sq"
    interactive_share: str | None = None
    interactive_nodes: int | None = None
    multiplicity_interactive: int = 4
    overhead: str = "1.2"
    sharing: str | None = None
    node_noise: float = 0.0
    quantum_ms: float | None = None
    hold: str = "yield"
    placement: str = "lln"
    memory_gib: float | None = None
    seed: int = 1


def setting_of(words: Words) -> Setting:
    """Return the setting that the words describe.

    Raises
    ------
    UsageError
        A word is not known, or two contradict each other.
    InputError
        A plug-in file cannot be used.
    """
    system = System.parse(words.system)
    return Setting(
        system=system,
        queues=_queues(words, system),
        rules=Rules(
            policy=_policy(words.policy),
            placement=_placement(words.placement),
            sharing=_sharing(words, system),
            node_memory_kib=_memory_kib(words.memory_gib),
        ),
    )


def _queues(words: Words, system: System) -> Queues:
    given = [word for word in (words.interactive_share, words.interactive_nodes) if word is not None]
    if words.queues == "sq":
        if given:
            raise UsageError("--interactive-share and --interactive-nodes go with --queues mq")
        return single_queue(system, words.multiplicity)
    if words.queues != "mq":
        raise UsageError(f"unknown queues {words.queues!r}: choose {' or '.join(LAYOUTS)}")
    if len(given) != 1:
        raise UsageError("--queues mq needs either --interactive-share, such as 5%, or --interactive-nodes")
    nodes = words.interactive_nodes or nodes_of_share(system, words.interactive_share or "")
    return multiple_queues(system, nodes, words.multiplicity, words.multiplicity_interactive)


def _policy(word: str) -> QueuePolicy:
    if word == "fcfs":
        return Fcfs()
    if word == "easy":
        return Easy()
    if word == "easy-elsewhere":
        return EasyElsewhere()
    if ":" not in word:
        raise UsageError(f"unknown policy {word!r}: choose {', '.join(POLICIES)} or FILE.py:NAME")
    return cast("QueuePolicy", load_plugin(word, "schedule"))


def _placement(word: str) -> Placement:
    if word == "lln":
        return SlurmPlacement()
    if word == "thesis":
        return ThesisPlacement()
    if ":" not in word:
        raise UsageError(f"unknown placement {word!r}: choose {', '.join(PLACEMENTS)} or FILE.py:NAME")
    return cast("Placement", load_plugin(word, "place"))


def _sharing(words: Words, system: System) -> SharingModel:
    model = Proportional.of(words.overhead)
    kinds = (words.sharing is not None, bool(words.node_noise), words.quantum_ms is not None)
    if sum(kinds) > 1:
        raise UsageError("--sharing, --node-noise and --slices do not go together")
    if words.quantum_ms is not None:
        return ExactSlices.of(model, words.quantum_ms, words.hold)
    if words.sharing is not None:
        return cast("SharingModel", load_plugin(words.sharing, "core_speed"))
    if words.node_noise:
        return NoisyNodes.draw(model, system.nodes, words.node_noise, words.seed)
    return model


def _memory_kib(gib: float | None) -> int | None:
    if gib is None:
        return None
    if not 0 < gib < _MOST_GIB:
        raise UsageError(f"--memory-gib must be positive, not {gib:g}")
    return int(gib * _KIB_PER_GIB)
