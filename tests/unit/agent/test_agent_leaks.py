from __future__ import annotations

from gangd.freezer.holder import StepKey
from tests.fixtures.gang_simulated import MS, SECOND, SimulatedAgent


def test_what_a_job_uses_while_it_is_held_is_reported() -> None:
    step, held_slices = StepKey(1, "0"), 40
    agent = SimulatedAgent(step)
    agent.freezer.members[step] = (2**22 + 1,)
    agent.freezer.used_ns[step] = 0
    agent.join()
    agent.rotate((), *[(1,)] * held_slices)
    agent.run((held_slices + 3) * agent.quantum_ns)  # it has had its slice, and is held again
    assert agent.held() == {1}
    agent.freezer.used_ns[step] += 30 * MS
    agent.run(3 * SECOND)
    leaks = [(leak.job, leak.cpu_us) for report in agent.reports for leak in report.leaks]
    assert leaks == [(1, 30_000)]
