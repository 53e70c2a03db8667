"""Which switches the switch thread makes by itself: those from a slice on to the next look, and one more.

Each freezes and thaws the difference to the one before, as if all before it had been made; the gate keeps off
what must not be frozen by then.
"""

from __future__ import annotations

from dataclasses import replace

from gangd.agent.decide import Limits, Situation, decide
from gangd.agent.switching.planned_switches import Prepared
from gangd.wire.cadence import is_look, looks_a_calm_look, slices_a_look
from gangd.wire.timeline import Timeline


def switches_to_look(
    timeline: Timeline,
    number: int,
    offset_ns: int,
    situation: Situation,
    limits: Limits,
    *,
    calm: bool = False,
) -> tuple[Prepared, ...]:
    """Return the switches that begin slice ``number`` and those after it.

    Parameters
    ----------
    timeline
        The schedule, with slice ``number``.
    number
        The slice after the one that runs.
    offset_ns
        The controller's clock minus ours.
    situation
        As it is now; ``planned`` is not looked at.
    limits
        Of the site.
    calm
        Whether the next look is one of a calm node.
    """
    spacing = slices_a_look(timeline.length_ns(number) or 1)
    if calm:
        spacing *= looks_a_calm_look(timeline.length_ns(number) or 1)
    queue: list[Prepared] = []
    while (start_ns := timeline.start_ns(number)) is not None:
        instant_ns, ours = start_ns - offset_ns, situation.ours
        situation = replace(
            situation, now_ns=max(situation.now_ns, instant_ns), planned=timeline.held(number)
        )
        hold = decide(situation, limits).hold
        freeze = tuple(key for key in hold if key not in ours)
        thaw = tuple(key for key in ours if key not in hold)
        queue.append(Prepared(number, timeline.epoch_of(number) or 0, instant_ns, freeze, thaw))
        # One more than to the look, for a loop that comes late; a long slice leaves it time enough.
        if spacing == 1 or (
            len(queue) > 1 and is_look(number - 1, timeline.length_ns(number) or 1, calm=calm)
        ):
            break
        situation = replace(situation, ours={key: ours.get(key, instant_ns) for key in hold})
        number += 1
    return tuple(queue)
