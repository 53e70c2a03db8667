"""``docs/production.md``, command by command, on a machine with systemd, Slurm and cgroup v2: there and back.

The page is read, not copied: what is written there runs. Each block of commands has a mark before it that
says where it belongs (``<!-- on the controller -->``); one without a mark fails the test, so that nothing on
the page goes untried unseen. One machine is controller and node; the node has an ``/etc/gangd`` of its own,
as it would on a host of its own, and ``scp`` and ``pdsh`` reach no further than here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.fixtures.machine.slurm import NODE, MachineCluster, idle_file
from tests.fixtures.machine.started import cluster_of_module

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/production.md").read_text()
WHERE = ("on the controller", "on each node", "into slurm.conf")
NOT_TRIED = "not tried: "
NAMES = (("n[1-400]", NODE), ("n[1-4]", NODE), ("DefMemPerCPU=2000", "DefMemPerCPU=100"))
"""What differs here: names of nodes, and a machine of 600 MB."""
SLOW_S = 90.0

_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n\n)?```[a-z]*\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str]]:
    """Return the blocks of the page in their order: where they belong, and their lines."""
    return [(where, text) for where, text in _BLOCK.findall(PAGE)]


def test_every_block_of_the_page_says_where_it_belongs() -> None:
    assert len(blocks()) == PAGE.count("```") // 2 > 8
    for where, text in blocks():
        assert where in WHERE or where.startswith(NOT_TRIED), f"no mark before: {text}"
    assert sum(where.startswith(NOT_TRIED) for where, _ in blocks()) <= 1


cluster = cluster_of_module(MachineCluster.pretend_hosts)


class Page:
    """Follows the page up to a heading."""

    def __init__(self, cluster: MachineCluster) -> None:
        self._cluster = cluster
        self._left = re.split(r"(?m)^(?=## )", PAGE)

    def follow(self, heading: str) -> None:
        """Run what the page says up to the end of the section of this heading."""
        while self._left:
            section = self._left.pop(0)
            for where, text in _BLOCK.findall(section):
                self._do(where, text)
            if re.match(rf"## [0-9]+\. {re.escape(heading)}\n", section):
                return
        pytest.fail(f"the page has no section {heading}")

    def _do(self, where: str, text: str) -> None:
        for name, here in NAMES:
            text = text.replace(name, here)
        if where == "into slurm.conf":
            self._cluster.add_to_slurm_conf(text)
        elif where in WHERE:
            script = f"set -e\n{text}"
            print(f"--- {where}\n{text}")
            print(self._cluster.on_node(script) if where == "on each node" else self._cluster.run(script))


@pytest.mark.long
@pytest.mark.slurm
@pytest.mark.timeout(1800)
def test_the_page_leads_there_and_back(cluster: MachineCluster) -> None:
    machine, page = cluster.machine, Page(cluster)
    try:
        page.follow("The nodes")
        machine.until(
            "systemctl status gangd --no-pager | grep -q '1 of 1 node'", SLOW_S, "the agent has joined"
        )
        machine.must("systemctl is-enabled gangd gang-agent")
        page.follow("A partition that shares")
        machine.until("sinfo -h -p shared -o %t | grep -q idle", SLOW_S, "the partition is there")
        two = [
            cluster.submit(name, "gangd-weight=0.5" * (name == "second"), "shared")
            for name in ("first", "second")
        ]
        machine.until(
            "systemctl status gangd --no-pager | grep -q '2 jobs on shared cores'", SLOW_S, "they share"
        )
        for job in two:  # each of them yields to the other now and then
            machine.until(f"grep -qx 1 {idle_file(job)}", SLOW_S, f"job {job} yields")
        page.follow("Is it well?")
        machine.must('! journalctl -q --no-pager -u gang-agent | grep -q \'"event": "fault"\'')
        page.follow("And back")
        # While jobs compute on the one core, what follows a stop may be too slow for systemd.
        assert not {"active", "activating"} & set(
            machine.run("systemctl is-active gangd gang-agent").text.split()
        )
        # Slurm's health check is a program of gangd's, too, and may run just now.
        machine.until("! pgrep -f 'gangd[.](agent[.])?main run'", SLOW_S, "nothing of gangd runs")
        assert machine.run("systemctl is-enabled gangd gang-agent").text.split() == ["disabled"] * 2
        for job in two:
            machine.must(f"grep -qx 0 {idle_file(job)}")
        assert "OverSubscribe=NO" in machine.must("scontrol show partition shared")
        assert "gang-bell" not in machine.must("scontrol show config")
        assert set(machine.must("squeue -h -t R -o %i").split()) == set(map(str, two))
        cluster.cancel(*two)
        machine.until("sinfo -h -p shared -o %t | grep -q idle", SLOW_S, "jobs end as ever")
    except BaseException:
        print(cluster.logs())
        raise
