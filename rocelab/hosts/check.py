"""What is wrong with hosts, and what differs between hosts that should be alike, in words for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rocelab.hosts.inventory import folded
from rocelab.hosts.rails import Facts, Rail
from rocelab.hosts.session import Clock

#: What a benchmark would not notice, and logs and certificates would.
CLOCK_APART_MAX_S: Final = 1.0
#: Above this many runnable programs per core, timings say less.
BUSY_LOAD: Final = 0.5

Kind = Literal["wrong", "differs"]

#: What hosts that are alike have in common, by the names of their facts.
_ALIKE: Final[Mapping[str, str]] = {
    "distribution": "distribution",
    "kernel": "kernel",
    "cpu_model": "processor",
    "cores": "number of cores",
    "sockets": "number of sockets",
    "numa_nodes": "number of NUMA nodes",
    "memory_gib": "memory in GiB",
    "governor": "CPU frequency governor",
    "iommu": "IOMMU",
    "memlock_kib": "limit of locked memory in KiB",
    "hugepages": "number of huge pages",
    "congestion_control": "congestion control of TCP",
    "rdma_core": "rdma-core",
    "ofed": "OFED",
}
_ALIKE_INTERFACE: Final[Mapping[str, str]] = {
    "mtu_bytes": "MTU",
    "rate_mbps": "rate in Mbps",
    "driver": "driver",
    "firmware": "firmware",
    "pause": "flow control",
    "bond_mode": "bonding",
    "pcie": "PCIe",
    "qos": "quality of service",
}
_ALIKE_DEVICE: Final[Mapping[str, str]] = {"model": "model", "board": "board", "firmware": "firmware", "pcie": "PCIe"}
_ALIKE_PORT: Final[Mapping[str, str]] = {"rate": "rate", "link_layer": "link layer"}
#: Memory of two machines of the same kind differs by what their firmware keeps.
_MEMORY_WITHIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a person should know about some hosts."""

    kind: Kind
    hosts: tuple[str, ...]
    text: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{folded(self.hosts)}: {self.text}" + (f". {self.advice}" if self.advice else "")


def findings(facts: Mapping[str, Facts], rails: Sequence[Rail], clocks: Mapping[str, Clock]) -> list[Finding]:
    """Everything, what is wrong first. The same thing of several hosts is one finding."""
    found = [*_merged([*_wrong(facts, rails), *_wrong_clocks(clocks)]), *_differences(facts, rails)]
    return sorted(found, key=lambda finding: finding.kind != "wrong")


def _merged(found: Sequence[Finding]) -> Iterator[Finding]:
    hosts: dict[tuple[Kind, str, str], list[str]] = {}
    for each in found:
        hosts.setdefault((each.kind, each.text, each.advice), []).extend(each.hosts)
    for (kind, text, advice), names in hosts.items():
        yield Finding(kind, tuple(names), text, advice)


def _wrong(facts: Mapping[str, Facts], rails: Sequence[Rail]) -> Iterator[Finding]:
    for host, said in facts.items():
        for text, advice in (*_wrong_system(said), *_wrong_devices(said)):
            yield Finding("wrong", (host,), text, advice)
    for rail in rails:
        for host, end in rail.ends.items():
            interface = facts[host]["interfaces"].get(end.interface, {})
            for text, advice in _wrong_pcie(interface):
                yield Finding("wrong", (host,), f"{end.interface} {text}", advice)
            if end.verbs == "roce" and end.device is not None and end.device.gid_index is None:
                yield Finding(
                    "wrong",
                    (host,),
                    f"{end.device.device} has no GID for {end.address}",
                    "Take the interface down and up again, or name `gid_index` in hosts.toml",
                )


def _wrong_system(said: Facts) -> Iterator[tuple[str, str]]:
    system = said["system"]
    has_devices = bool(said["devices"])
    if system.get("governor") not in (None, "performance"):
        yield (
            f"the CPU frequency governor is {system['governor']}",
            "Latencies are steady with `cpupower frequency-set -g performance`",
        )
    if has_devices and "memlock_kib" in system:
        yield (
            f"programs may lock {system['memlock_kib']} KiB of memory",
            "Verbs need more: set `memlock unlimited` in /etc/security/limits.conf",
        )
    if has_devices and system.get("iommu") == "translating":
        yield "the IOMMU translates every DMA", "Boot with iommu=pt, unless the host needs the protection"
    load = system.get("load", 0.0)
    if load > BUSY_LOAD * system.get("cores", 1):
        yield f"it is busy: load {load:g} on {system.get('cores', 1)} cores", "What is measured meanwhile says less"


def _wrong_devices(said: Facts) -> Iterator[tuple[str, str]]:
    for name, device in said["devices"].items():
        for text, advice in _wrong_pcie(device):
            yield f"{name} {text}", advice
        for number, port in device["ports"].items():
            if port.get("state") != "ACTIVE":
                state = f"{port.get('state', 'unknown')}, {port.get('physical_state', 'unknown')}"
                yield (
                    f"{name} port {number} is not active ({state})",
                    "Look at the cable, at the switch port, and on InfiniBand at the subnet manager",
                )


def _wrong_pcie(said: Facts) -> Iterator[tuple[str, str]]:
    if said.get("pcie") and said.get("pcie_max") and said["pcie"] != said["pcie_max"]:
        yield (
            f"runs at PCIe {said['pcie']} and could at {said['pcie_max']}",
            "Look at the slot, at the riser, and at the firmware's settings of the slot",
        )


def _wrong_clocks(clocks: Mapping[str, Clock]) -> Iterator[Finding]:
    for host, clock in clocks.items():
        if abs(clock.offset_s) > CLOCK_APART_MAX_S + clock.within_s:
            side = "ahead of" if clock.offset_s > 0 else "behind"
            text = f"its clock is {abs(clock.offset_s):.0f} s {side} this machine's"
            yield Finding("wrong", (host,), text, "Set it by chrony or systemd-timesyncd")


def _differences(facts: Mapping[str, Facts], rails: Sequence[Rail]) -> Iterator[Finding]:
    for name, words in _ALIKE.items():
        yield from _odd(words, {host: said["system"].get(name) for host, said in facts.items()})
    for rail in rails:
        ends = {host: facts[host]["interfaces"].get(end.interface, {}) for host, end in rail.ends.items()}
        for name, words in _ALIKE_INTERFACE.items():
            yield from _odd(f"{words} of {rail.id}", {host: said.get(name) for host, said in ends.items()})
    for device in dict.fromkeys(name for said in facts.values() for name in said["devices"]):
        for name, words in _ALIKE_DEVICE.items():
            of_device = {host: said["devices"].get(device, {}).get(name) for host, said in facts.items()}
            yield from _odd(f"{words} of {device}", of_device)
        for name, words in _ALIKE_PORT.items():
            first = {host: _first_port(said, device).get(name) for host, said in facts.items()}
            yield from _odd(f"{words} of {device}", first)
    for program in dict.fromkeys(name for said in facts.values() for name in said["programs"]):
        versions = {host: said["programs"].get(program, {}).get("version", "") for host, said in facts.items()}
        there = {host for host, said in facts.items() if program in said["programs"]}
        yield from _odd(Path(program).name, {host: versions[host] if host in there else None for host in facts})


def _first_port(said: Facts, device: str) -> Facts:
    ports: Mapping[str, Facts] = said["devices"].get(device, {}).get("ports", {})
    return next(iter(ports.values()), {})


def _odd(words: str, values: Mapping[str, Any]) -> Iterator[Finding]:
    """Hosts whose value is not that of most; all groups of them where there is no most."""
    groups: dict[str, list[str]] = {}
    for host, value in values.items():
        groups.setdefault(_comparable(value, groups), []).append(host)
    if len(groups) < 2:
        return
    (usual, most), *_ = Counter({value: len(hosts) for value, hosts in groups.items()}).most_common()
    if most > len(values) / 2:
        for value, hosts in groups.items():
            if value != usual:
                others = f"the {most} others" if len(groups) == 2 else f"{most} others"
                yield Finding("differs", tuple(hosts), f"{words}: {value}, where {others} have {usual}")
        return
    said = "; ".join(f"{folded(hosts)} {value}" for value, hosts in groups.items())
    yield Finding("differs", tuple(values), f"{words} differs: {said}")


def _comparable(value: Any, seen: Mapping[str, Any]) -> str:
    """A value in words; a number that is nearly one that was seen is that one."""
    if isinstance(value, float):
        for other in seen:
            if other != "none" and abs(float(other) - value) <= _MEMORY_WITHIN * value:
                return other
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    return "none" if value is None else str(value)
