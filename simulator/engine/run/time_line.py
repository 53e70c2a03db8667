"""All pools of a system on one time line."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.engine.desk.stepper import Stepper
from simulator.engine.state.engine_state import FAR_US
from simulator.slices.gang_stepper import GangStepper


def run_together(steppers: Sequence[Stepper]) -> None:
    """Run pools to their end, event by event in order of time; at one instant, in their order.

    Pools with exact slices have a clock of their own and are run one after the other.
    """
    if len(steppers) == 1 or any(isinstance(stepper, GangStepper) for stepper in steppers):
        for stepper in steppers:
            stepper.run()
        return
    desks = {stepper.pool_name: stepper for stepper in steppers}
    for stepper in steppers:
        stepper.pools = desks
    for stepper in steppers:
        stepper.begin()
    while True:
        stepper = min(steppers, key=lambda pool: pool.next_us)
        at_us = stepper.next_us
        if at_us == FAR_US:
            break
        for other in steppers:
            other.state.clock[0].now_us = at_us
        stepper.step()
    for stepper in steppers:
        stepper.check_end()
