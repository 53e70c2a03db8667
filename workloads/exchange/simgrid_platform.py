"""A platform of SimGrid as a system of hosts and cores, and a system as a platform.

Entities, which can make a small file a large one, are refused, and the document type is not fetched. What is
written is XML, version 4.1 of the format, which Batsim and ElastiSim read; its hosts have no network to speak
of: jobs are delays, and no traffic is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from foundation.errors import InputError
from foundation.id_list import spans_of
from foundation.units import counted
from workloads.exchange.fields import Machines, Unit, shown

MOST_BYTES = 64 << 20
MOST_HOSTS = 10_000_000
_NO_NODE = {("role", "master"), ("role", "storage"), ("batch_system", "true"), ("pfs_host", "true")}

HEAD = """<?xml version='1.0'?>
<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">
<platform version="4.1">
"""
NETWORK = 'bw="10GBps" lat="50us" bb_bw="100GBps" bb_lat="50us"'


@dataclass(slots=True)
class _Hosts:
    """A host or a cluster of them."""

    name: str
    count: int
    cores: int
    computes: bool = True


@dataclass(slots=True)
class _Reader:
    path: Path
    hosts: list[_Hosts] = field(default_factory=list)
    open: list[_Hosts | None] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    root: str | None = None

    def start(self, tag: str, values: dict[str, str]) -> None:
        self.root = self.root or tag
        made: _Hosts | None = None
        if tag in ("host", "cluster"):
            name = values.get("id", "")
            where = f"{self.path}: {tag} {shown(name)}"
            count = 1 if tag == "host" else _count(values.get("radical"), where)
            made = _Hosts(name, count, _whole(values.get("core", "1"), f"{where}: core"))
            self.hosts.append(made)
        elif tag == "prop":
            self._prop(values.get("id", ""), values.get("value", ""))
        self.open.append(made)

    def end(self, _tag: str) -> None:
        self.open.pop()

    def _prop(self, name: str, value: str) -> None:
        of = self.open[-1] if self.open else None
        if of is not None and (name, value.lower()) in _NO_NODE:
            of.computes = False
        elif of is not None and name in ("osub_system", "osub_unit"):
            self.properties[name] = value

    def entity(self, name: str, *_: object) -> None:
        raise InputError(f"{self.path}: an entity ({shown(name)}) is defined: that is refused")


def read_platform(path: Path) -> Machines:
    """Return the system that a platform file describes.

    A host is a node, unless osub wrote the file by cores. Masters, storage, file systems and the batch
    system's host are none.

    Raises
    ------
    InputError
        The file cannot be read, is no such document, has no host, or its hosts differ in their cores.
    """
    reader = _Reader(path)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = reader.entity
    try:
        with path.open("rb") as stream:
            if len(data := stream.read(MOST_BYTES + 1)) > MOST_BYTES:
                raise InputError(f"{path} is larger than {MOST_BYTES >> 20} MiB: is it a platform?")
        parser.Parse(data, True)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except expat.ExpatError as error:
        raise InputError(f"{path}:{error.lineno}: is no XML: {expat.ErrorString(error.code)}") from error
    except (LookupError, ValueError) as error:
        raise InputError(f"{path}: is in no encoding that is known") from error
    if reader.root != "platform":
        raise InputError(f"{path}: is no platform of SimGrid: it begins with {shown(reader.root)}")
    return _machines(reader)


def _machines(reader: _Reader) -> Machines:
    nodes = [one for one in reader.hosts if one.computes]
    count = sum(one.count for one in nodes)
    if not 1 <= count <= MOST_HOSTS:
        raise InputError(f"{reader.path}: has {counted(count, 'host')} that compute, not 1 to {MOST_HOSTS:,}")
    other = next((one for one in nodes if one.cores != nodes[0].cores), None)
    if other is not None:
        raise InputError(
            f"{reader.path}: host {shown(other.name)}: core: {counted(other.cores, 'core')}, and "
            f"{shown(nodes[0].name)} has {nodes[0].cores}: a system has nodes of one size"
        )
    if not reader.properties:
        return Machines(count, nodes[0].cores, Unit.NODE)
    where = f"{reader.path}: osub_system"
    made = Machines.named(
        reader.properties.get("osub_system", ""), reader.properties.get("osub_unit", ""), where
    )
    if (made.hosts, made.cores_of_host) != (count, nodes[0].cores):
        raise InputError(
            f"{where}: {made.system} by {made.unit} does not have {counted(count, 'host')} of "
            f"{nodes[0].cores}"
        )
    return made


def _count(radical: str | None, where: str) -> int:
    """Return how many hosts a radical such as ``0-3,7`` names."""
    try:
        return sum(map(len, spans_of((radical or "").replace(" ", ""))))
    except ValueError as error:
        raise InputError(f"{where}: radical: {shown(radical)} is no list such as 0-3,7") from error


def _whole(text: str, where: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text)):
        raise InputError(f"{where}: {shown(text)} is no number of cores")
    return int(text)


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
