"""A system as a platform of SimGrid, which Batsim and ElastiSim read: XML, version 4.1 of its format.

The hosts have no network to speak of: jobs are delays, and no traffic is simulated.
"""

from __future__ import annotations

from xml.sax.saxutils import quoteattr

from workloads.exchange.machines import Machines, Unit

HEAD = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
"""
NETWORK = 'bw="10GBps" lat="50us" bb_bw="100GBps" bb_lat="50us"'


def batsim_platform(machines: Machines, speed: str = "1Gf") -> str:
    """Return the platform for Batsim: a host for each core or node, in their order, and a master.

    ``speed`` is that of a core. Batsim numbers hosts in the order of their names, read as numbers.
    """
    cores = machines.cores if machines.unit is Unit.NODE else 1
    hosts = _cluster(f"{machines.unit}s", "h", machines, speed, cores)
    master = (
        '    <cluster id="masters" prefix="master_host" suffix="" radical="0-0" '
        f"speed={quoteattr(speed)} {NETWORK}>\n"
        '      <prop id="role" value="master"/>\n'
        "    </cluster>\n"
    )
    route = (
        '    <link id="backbone" bandwidth="100GBps" latency="50us"/>\n'
        f'    <zoneRoute src="{machines.unit}s" dst="masters" gw_src="h{machines.unit}s_router" '
        'gw_dst="master_hostmasters_router">\n'
        '      <link_ctn id="backbone"/>\n'
        "    </zoneRoute>\n"
    )
    return f'{HEAD}  <zone id="osub" routing="Full">\n{hosts}{master}{route}  </zone>\n</platform>\n'


def elastisim_platform(machines: Machines, speed: str = "1Gf") -> str:
    """Return the platform for ElastiSim: a host for each node, and the batch system's."""
    batch = (
        '    <zone id="batch_zone" routing="Full">\n'
        '      <host id="batch_system" speed="0Gf">\n'
        '        <prop id="batch_system" value="true"/>\n'
        "      </host>\n"
        "    </zone>\n"
    )
    hosts = _cluster("nodes", "n", machines, speed, machines.cores)
    return f'{HEAD}  <zone id="osub" routing="Full">\n{batch}{hosts}  </zone>\n</platform>\n'


def _cluster(name: str, prefix: str, machines: Machines, speed: str, cores: int) -> str:
    return (
        f'    <cluster id="{name}" prefix="{prefix}" suffix="" radical="0-{machines.hosts - 1}" '
        f'speed={quoteattr(speed)} core="{cores}" {NETWORK}>\n'
        f'      <prop id="osub_system" value="{machines.system}"/>\n'
        f'      <prop id="osub_unit" value="{machines.unit}"/>\n'
        "    </cluster>\n"
    )
