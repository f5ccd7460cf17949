"""Rails: the networks that join the hosts, found in what each host says of itself, or named in hosts.toml.

A network that every host has an address in is a rail. Networks whose addresses repeat, as those that containers make on
every host, join nothing. Where hosts are routed to, each with a network of its own, an interface of the same name is
one. InfiniBand needs no addresses: a device of the same name on all hosts is a rail that has verbs alone.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from rocelab.devices import DevicePort
from rocelab.fabric.base import FabricError
from rocelab.hosts.inventory import RailTable

Facts = Mapping[str, Any]

#: Drivers of devices that are software, and what studies call what they do.
_SOFTWARE: Final = {"rdma_rxe": "rxe", "siw": "siw"}
_ID_MAX: Final = 40


@dataclass(frozen=True, slots=True)
class End:
    """Where a rail ends on one host."""

    interface: str
    """Empty: a device without one."""
    address: str
    """IPv4; for a device without one, the host's in the first rail that has some."""
    prefix_bits: int
    mtu_bytes: int | None
    rate_mbps: int | None
    cores: tuple[int, ...]
    """Those of the NUMA node that the device or interface belongs to; none where that is not known."""
    device: DevicePort | None
    verbs: str | None
    """What verbs over the device are: ``roce``, ``infiniband``, ``iwarp``, or the kernel's ``rxe`` and ``siw``."""
    is_ipoib: bool = False


@dataclass(frozen=True, slots=True)
class Rail:
    """One network."""

    id: str
    ends: Mapping[str, End]
    """By host, of all hosts."""

    @property
    def has_addresses(self) -> bool:
        """Whether sockets can be used over it."""
        return all(end.interface for end in self.ends.values())

    @property
    def verbs(self) -> str | None:
        """What verbs over it are; None unless all hosts have the same."""
        kinds = {end.verbs for end in self.ends.values()}
        return kinds.pop() if len(kinds) == 1 else None

    @property
    def mtu_bytes(self) -> int | None:
        """The smallest that a host has; None where no host says."""
        return min((end.mtu_bytes for end in self.ends.values() if end.mtu_bytes is not None), default=None)

    @property
    def rate_mbps(self) -> int | None:
        """What the slowest port says that it carries; None where one does not say."""
        rates = [end.rate_mbps for end in self.ends.values()]
        return None if None in rates else min(rate for rate in rates if rate is not None)

    @property
    def interconnects(self) -> tuple[str, ...]:
        """What can be compared over it, besides what verbs are: sockets, and urxe over them."""
        if not self.has_addresses:
            return ()
        return (
            ("ipoib",) if any(end.is_ipoib for end in self.ends.values()) else ("tcp", "udp", "soft-roce", "soft-iwarp")
        )


@dataclass(frozen=True, slots=True)
class _Candidate:
    """An interface with one of its addresses."""

    interface: str
    address: ipaddress.IPv4Interface


def find(facts: Mapping[str, Facts], named: Sequence[RailTable]) -> list[Rail]:
    """The rails of the hosts: those that are named, else all. FabricError where a host has no end of one."""
    if named:
        return [_named(facts, table) for table in named]
    rails = [*_by_network(facts)]
    rails += _by_name(facts, {end.interface for rail in rails for end in rail.ends.values()})
    if rails:
        rails += _by_device(facts, rails)
    if not rails:
        raise FabricError(
            "the hosts share no network: no two of their interfaces that are up have addresses in the same one. "
            "Name the interface or network of each rail in hosts.toml (docs/hosts.md)"
        )
    return rails


def _candidates(facts: Facts) -> Iterator[_Candidate]:
    for name, interface in facts["interfaces"].items():
        if interface.get("state") in ("up", "unknown", None):
            for text in interface["addresses"]:
                yield _Candidate(name, ipaddress.IPv4Interface(text))


def _by_network(facts: Mapping[str, Facts]) -> Iterator[Rail]:
    found: dict[ipaddress.IPv4Network, dict[str, _Candidate]] = {}
    for host, said in facts.items():
        for each in _candidates(said):
            found.setdefault(each.address.network, {}).setdefault(host, each)
    for network, by_host in found.items():
        addresses = {each.address.ip for each in by_host.values()}
        if len(by_host) == len(facts) and len(addresses) == len(facts):
            yield _rail(facts, by_host, str(network.network_address))


def _by_name(facts: Mapping[str, Facts], taken: set[str]) -> Iterator[Rail]:
    by_name: dict[str, dict[str, _Candidate]] = {}
    for host, said in facts.items():
        for each in _candidates(said):
            if each.interface not in taken:
                by_name.setdefault(each.interface, {}).setdefault(host, each)
    for name, by_host in by_name.items():
        addresses = {each.address.ip for each in by_host.values()}
        if len(by_host) == len(facts) and len(addresses) == len(facts):
            yield _rail(facts, by_host, name)


def _by_device(facts: Mapping[str, Facts], rails: Sequence[Rail]) -> Iterator[Rail]:
    """Devices whose ports are up and in no rail so far."""
    seen = {end.device.device for rail in rails for end in rail.ends.values() if end.device is not None}
    first = next(iter(facts.values()))
    reachable = next(rail for rail in rails if rail.has_addresses)
    for name in first["devices"]:
        ends = {
            host: _bare_end(said, name, reachable.ends[host])
            for host, said in facts.items()
            if name not in seen and _port_of(said, name, 1).get("state") == "ACTIVE"
        }
        if len(ends) == len(facts):
            yield Rail(_id(name), ends)


def _named(facts: Mapping[str, Facts], table: RailTable) -> Rail:
    ends = {}
    for host, said in facts.items():
        fitting = [each for each in _candidates(said) if _is_meant(each, table)]
        if not fitting:
            wanted = f"interface {table.interface}" if table.interface else f"address in {table.network}"
            there = ", ".join(f"{each.interface} {each.address}" for each in _candidates(said)) or "none"
            raise FabricError(f"{host} has no {wanted} that is up, which rail {table.id} needs; it has: {there}")
        ends[host] = _end(said, fitting[0], table)
    return Rail(table.id, ends)


def _is_meant(candidate: _Candidate, table: RailTable) -> bool:
    if table.interface is not None:
        return candidate.interface == table.interface
    return candidate.address.ip in ipaddress.IPv4Network(str(table.network))


def _rail(facts: Mapping[str, Facts], by_host: Mapping[str, _Candidate], otherwise: str) -> Rail:
    """A rail is called as its interfaces, if they all have the same name."""
    names = {each.interface for each in by_host.values()}
    name = names.pop() if len(names) == 1 else f"net-{otherwise}"
    return Rail(_id(name), {host: _end(facts[host], by_host[host], None) for host in facts})


def _id(name: str) -> str:
    """A name as study files have them."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:_ID_MAX] or "rail"


def _end(facts: Facts, candidate: _Candidate, table: RailTable | None) -> End:
    interface = facts["interfaces"][candidate.interface]
    device = _device(facts, candidate, table)
    port = {} if device is None else _port_of(facts, device.device, device.number)
    return End(
        interface=candidate.interface,
        address=str(candidate.address.ip),
        prefix_bits=candidate.address.network.prefixlen,
        mtu_bytes=interface.get("mtu_bytes"),
        rate_mbps=interface.get("rate_mbps") or _port_rate_mbps(facts, device),
        cores=_cores(interface.get("local_cores")),
        device=device,
        verbs=None if device is None else _verbs(facts["devices"][device.device], port),
        is_ipoib=interface.get("kind") == "ipoib",
    )


def _bare_end(facts: Facts, name: str, reachable: End) -> End:
    device, port = facts["devices"][name], _port_of(facts, name, 1)
    return End(
        interface="",
        address=reachable.address,
        prefix_bits=reachable.prefix_bits,
        mtu_bytes=None,
        rate_mbps=port.get("rate_mbps"),
        cores=_cores(device.get("local_cores")),
        device=DevicePort(name),
        verbs=_verbs(device, port),
    )


def _port_rate_mbps(facts: Facts, device: DevicePort | None) -> int | None:
    """The rate of a port. A device in software says one, and has none but its interface's."""
    if device is None or facts["devices"][device.device].get("driver") in _SOFTWARE:
        return None
    rate: int | None = _port_of(facts, device.device, device.number).get("rate_mbps")
    return rate


def _port_of(facts: Facts, device: str, number: int) -> Facts:
    found: Facts = facts["devices"].get(device, {}).get("ports", {}).get(str(number), {})
    return found


def _device(facts: Facts, candidate: _Candidate, table: RailTable | None) -> DevicePort | None:
    """The device of an interface, with the GID of RoCE v2 that stands for the address."""
    if table is not None and table.device is not None:
        if table.device not in facts["devices"]:
            there = ", ".join(facts["devices"]) or "none"
            raise FabricError(f"there is no RDMA device {table.device}, which rail {table.id} names; there is: {there}")
        port = _port_of(facts, table.device, table.port)
        index = table.gid_index if table.gid_index is not None else _gid_index(port, candidate)
        return DevicePort(table.device, table.port, index)
    for name, device in facts["devices"].items():
        for number, port in device["ports"].items():
            if port.get("netdev") == candidate.interface and port.get("state") == "ACTIVE":
                index = table.gid_index if table is not None else None
                return DevicePort(name, int(number), _gid_index(port, candidate) if index is None else index)
    return None


def _gid_index(port: Facts, candidate: _Candidate) -> int | None:
    if port.get("link_layer") == "InfiniBand":
        return None
    own = [gid for gid in port.get("gids", ()) if gid.get("ipv4") == str(candidate.address.ip)]
    # Version 1 has the same address in another entry.
    best = [gid for gid in own if gid.get("type") == "RoCE v2"] or own or list(port.get("gids", ()))
    return int(best[0]["index"]) if best else None


def _verbs(device: Facts, port: Facts) -> str:
    if device.get("driver") in _SOFTWARE:
        return _SOFTWARE[device["driver"]]
    if device.get("type") == "RNIC":
        return "iwarp"
    return "infiniband" if port.get("link_layer") == "InfiniBand" else "roce"


def _cores(text: str | None) -> tuple[int, ...]:
    """``0-3,8-11`` of a file under /sys."""
    cores: list[int] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        if first.isdigit():
            cores += range(int(first), int(last or first) + 1)
    return tuple(cores)
