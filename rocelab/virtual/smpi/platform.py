"""Writes SimGrid's platform from profiles: nodes with their cores, cables, switch and memory.

SimGrid moves messages as flows that share rates, not as packets. So what the packets cost is in the rates: headers,
encoding, and PCI Express. The formulas are those of the packet simulator, and a test holds them against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree as ET

from rocelab.profiles import Adapter, Host, Mpi, Stack, Switch
from rocelab.profiles.model import bus_gbps

#: Ethernet with preamble and gap, IPv4, UDP, the transport header and the check of RoCEv2
#: (nic/wire).
_ETHERNET_BYTES = 38 + 20 + 8 + 12 + 4
#: Local route header, transport header, invariant and variant check (IBTA volume 1, chapter 5).
_INFINIBAND_BYTES = 8 + 12 + 4 + 2
#: What surrounds the data of a PCI Express write, of an answer to a read, and of a read request;
#: and what goes the other way for each that carries data (docs/simulator.md).
_WRITE_BYTES, _ANSWER_BYTES, _REQUEST_BYTES, _CREDIT_BYTES = 24, 20, 24, 8

_DOCTYPE = '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">'


@dataclass(frozen=True, slots=True)
class Rates:
    """What SimGrid has to know of an adapter in its host. Rates are of data, 10^9 bit/s."""

    port_gbps: float
    """Of one direction alone."""
    bus_gbps: float
    """Of both directions together."""
    latency_ns: float
    """From node to node, without MPI."""


def rates(adapter: Adapter, host: Host, stack: Stack, switch: Switch, propagation_ns: float) -> Rates:
    """The rates of an adapter, and the latency between two of them through a switch."""
    port = adapter.port
    header_bytes = _ETHERNET_BYTES if port.kind == "ethernet" else _INFINIBAND_BYTES + port.delimiter_bytes
    wire_gbps = port.ports * port.data_rate_gbps * port.mtu_bytes / (port.mtu_bytes + header_bytes)
    pcie_gbps = bus_gbps(adapter, host)
    written = (host.payload_bytes + _WRITE_BYTES) / host.payload_bytes
    read = (host.completion_bytes + _ANSWER_BYTES) / host.completion_bytes
    asked = _REQUEST_BYTES / host.read_request_bytes + _CREDIT_BYTES / host.completion_bytes
    answered = _CREDIT_BYTES / host.payload_bytes
    both_gbps = min(wire_gbps, pcie_gbps / max(written + asked, read + answered))
    return Rates(
        port_gbps=min(wire_gbps, pcie_gbps / max(written, read)),
        bus_gbps=2 * both_gbps,
        latency_ns=(
            stack.send_ns + host.posted_ns + adapter.send_ns + header_bytes * 8 / port.data_rate_gbps + propagation_ns
            + switch.latency_ns
            + propagation_ns + adapter.receive_ns + host.posted_ns + stack.receive_ns
        ),
    )  # fmt: skip


def platform(rates: Rates, host: Host, mpi: Mpi, nodes: int, work_per_s: float) -> str:
    """The platform of so many nodes, as XML. `work_per_s` is the speed of a core, in units of the programs' work."""
    assert host.memory_gbps is not None
    root = ET.Element("platform", version="4.1")
    zone = ET.SubElement(root, "zone", id="study", routing="Full")
    names = [f"node-{number}" for number in range(nodes)]
    for name in names:
        ET.SubElement(zone, "host", id=name, speed=f"{work_per_s:.6g}f", core=str(host.cores))
    for name in names:
        half_ns = rates.latency_ns / 2
        _link(zone, f"{name}-cable", rates.port_gbps, half_ns, "SPLITDUPLEX")
        _link(zone, f"{name}-bus", rates.bus_gbps, 0)
        _link(zone, f"{name}-memory", host.memory_gbps, 0)
        _link(zone, f"{name}-pair", mpi.shared_gbps, mpi.shared_latency_ns, "FATPIPE")
    for at, name in enumerate(names):
        _route(zone, name, name, f"{name}-pair", f"{name}-memory")
        for other in names[at + 1 :]:
            _route(
                zone, name, other,
                f"{name}-bus", f"{name}-cable:UP", f"{other}-cable:DOWN", f"{other}-bus",
            )  # fmt: skip
    ET.indent(root)
    return f"<?xml version='1.0'?>\n{_DOCTYPE}\n{ET.tostring(root, encoding='unicode')}\n"


def _link(zone: ET.Element, name: str, rate_gbps: float, latency_ns: float, policy: str = "SHARED") -> None:
    ET.SubElement(
        zone, "link", id=name, bandwidth=f"{rate_gbps * 1e9:.6g}bps", latency=f"{latency_ns:.6g}ns",
        sharing_policy=policy,
    )  # fmt: skip


def _route(zone: ET.Element, source: str, destination: str, *links: str) -> None:
    route = ET.SubElement(zone, "route", src=source, dst=destination)
    for link in links:
        name, _, direction = link.partition(":")
        ET.SubElement(route, "link_ctn", {"id": name, **({"direction": direction} if direction else {})})


def hostfile(nodes: int, ranks_per_node: int) -> str:
    """On which node each rank is, a line for each: one node after the other is filled."""
    return "".join(f"node-{number}\n" * ranks_per_node for number in range(nodes))


def options(mpi: Mpi) -> dict[str, str]:
    """SimGrid's configuration: an MPI library, and a network that has no costs but those of the platform."""
    copy_s = 8e-9 / mpi.copy_gbps
    send = f"0:{mpi.send_ns * 1e-9:g}:{copy_s:g};{mpi.eager_bytes}:{mpi.send_ns * 1e-9:g}:0"
    receive = f"0:{mpi.receive_ns * 1e-9:g}:{copy_s:g};{mpi.eager_bytes}:{mpi.receive_ns * 1e-9:g}:0"
    return {
        "smpi/simulate-computation": "no",
        "smpi/coll-selector": mpi.collectives,
        **{f"smpi/{collective}": selection for collective, selection in mpi.replaced.items()},
        "smpi/async-small-thresh": str(mpi.eager_bytes),
        "smpi/send-is-detached-thresh": str(mpi.eager_bytes),
        "smpi/os": send,
        "smpi/ois": send,
        "smpi/or": receive,
        # A rendezvous crosses the network three times: asking, answering, and with the data.
        "smpi/lat-factor": f"0:1;{mpi.eager_bytes}:3",
        "smpi/bw-factor": "0:1",
        "network/crosstraffic": "no",
        "smpi/wtime": "0",
    }
