"""Incast: several nodes write to one through a switch with a small buffer and no flow control: `python -m soak.incast`.

The switch may mark packets "congestion experienced": a rule of nftables does so with what exceeds most of the port's
rate, a queue that is virtual and shorter than the real one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile, Running
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.interconnects import urxe

from .scene import LINK

MTU_BYTES: Final = 1500
#: What RoCEv2's headers and Ethernet's framing leave of a packet with 1024 bytes of payload.
PAYLOAD_SHARE: Final = 1024 / 1106
FIRST_PORT: Final = 18515
#: Marked is what exceeds this share of what the port can carry for longer than a burst.
MARKED_FROM: Final = 0.85
MARKED_BURST: Final = 16
#: Of a full packet, on the wire. A limit in bytes would allow bursts of a second, one in packets
#: does not.
PACKET_BYTES: Final = 1106
#: perftest's line of results: bytes, iterations, peak and average in MiB/s.
RESULT: Final = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", re.MULTILINE)
MARKS: Final = """table bridge marks {{
    chain forward {{
        type filter hook forward priority 0;
        oifname "{port}" ip ecn != not-ect limit rate over {rate}/second burst {burst} packets ip ecn set ce
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the senders got."""

    rates_mbps: Sequence[float]
    """Payload, of each."""
    of_bottleneck: float
    """All together, as a share of what the port can carry."""
    jain: float
    """Jain's fairness index: 1 if all got the same, 1/n if one got all."""
    marked: int
    notified: int


def incast(senders: int, rate_mbps: float, buffer_bytes: int, seconds: int, *, marks: bool) -> Outcome:
    """Let so many nodes write to one for a while."""
    link = LinkProfile(LINK, "bridge", mtu_bytes=MTU_BYTES, rate_mbps=rate_mbps, switch_queue_bytes=buffer_bytes)
    with emulated.up([link], emulated.default_names(senders + 1)) as fabric:
        if marks:
            _mark(fabric, rate_mbps)
        rates_mbps, counters = _write_to_first(fabric, seconds)
    total_mbps = sum(rates_mbps)
    return Outcome(
        rates_mbps=rates_mbps,
        of_bottleneck=total_mbps / (rate_mbps * PAYLOAD_SHARE),
        jain=total_mbps**2 / (senders * sum(rate**2 for rate in rates_mbps)) if total_mbps else 0.0,
        marked=counters.get("np_ecn_marked_roce_packets", 0),
        notified=counters.get("np_cnp_sent", 0),
    )


def _write_to_first(fabric: EmulatedFabric, seconds: int) -> tuple[list[float], dict[str, int]]:
    launcher = NamespaceLauncher(fabric)
    receiver, *senders = fabric.nodes
    device = f"urxe_{receiver.interfaces[LINK]}"
    argv = [urxe().name, "run", "--", "ib_write_bw", "-d", device, "-x", "0", "-u", "18", "-F"]
    argv += ["-D", str(seconds), "-f", "0", "-t", "32"]
    ports = [str(FIRST_PORT + at) for at in range(len(senders))]
    running: list[Running] = []
    try:
        servers = [launcher.start(receiver, [*argv, "-p", port]) for port in ports]
        running += servers
        for server, port in zip(servers, ports, strict=True):
            launcher.wait_until_listening(receiver, server, int(port), timeout_s=20.0)
        target = receiver.addresses[LINK]
        clients = [launcher.start(node, [*argv, "-p", port, target]) for node, port in zip(senders, ports, strict=True)]
        running += clients
        time.sleep(0.7 * seconds)
        counters = _counters(launcher.start(receiver, [urxe().name, "stat", "--json"]).wait(10.0).stdout)
        said = [client.wait(seconds + 60.0).stdout for client in clients]
    finally:
        for program in running:
            program.stop()
    results = [RESULT.search(text) for text in said]
    return [float(found[1]) * 8 * 1.048576 if found else 0.0 for found in results], counters


def _counters(stat: str) -> dict[str, int]:
    counters: dict[str, int] = {}
    for process in json.loads(stat)["processes"]:
        for device in process["devices"]:
            for name, value in device["counters"].items():
                counters[name] = counters.get(name, 0) + value
    return counters


def can_mark() -> str | None:
    """Why packets cannot be marked here; None if they can."""
    if os.geteuid() != 0:
        return "entering the switch takes root"
    return None if shutil.which("nft") else "there is no nft; install the Debian package nftables"


def _mark(fabric: EmulatedFabric, rate_mbps: float) -> None:
    """Let the switch mark what exceeds the rate of its port to the first node."""
    rate = int(rate_mbps * 1e6 / 8 / PACKET_BYTES * MARKED_FROM)
    rules = MARKS.format(port="l0n0", rate=rate, burst=MARKED_BURST)
    command = ["nsenter", "-t", str(_switch(fabric)), "-n", "nft", "-f", "-"]
    subprocess.run(command, input=rules, text=True, check=True, capture_output=True, timeout=10)


def _switch(fabric: EmulatedFabric) -> int:
    """A process in the network namespace of the fabric's switch, which has the other ends of the nodes' cables."""
    nodes = {Path(f"/proc/{node.pid}/ns/net").readlink() for node in fabric.nodes}
    # A cable's end says which interface is the other: `iflink` in the node is the index in the
    # switch.
    other_ends = {Path(f"/proc/{node.pid}/root/sys/class/net/eth0/iflink").read_text().strip() for node in fabric.nodes}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if not folder.name.isdigit() or (folder / "ns/net").readlink() in nodes:
                continue
            command = ["nsenter", "-t", folder.name, "-n", "ip", "-json", "link", "show", "type", "veth"]
            if f"l0n{len(nodes) - 1}:" not in (folder / "net/dev").read_text():
                continue
            links = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=10).stdout)
            if {str(link["ifindex"]) for link in links} == other_ends:
                return int(folder.name)
    raise RuntimeError("the fabric has no switch")


def main() -> None:
    """Measure with and without marks, and print a row for each."""
    parser = argparse.ArgumentParser(prog="python -m soak.incast", description="Incast through a small buffer.")
    parser.add_argument("--senders", type=int, default=8)
    parser.add_argument("--rate-mbps", type=float, default=200.0)
    parser.add_argument("--buffer-bytes", type=int, default=64 << 10)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--repetitions", type=int, default=3)
    chosen = parser.parse_args()
    for marks in [False, True] * chosen.repetitions:
        if marks and (why := can_mark()):
            print(f"marks: skipped: {why}")
            continue
        outcome = incast(chosen.senders, chosen.rate_mbps, chosen.buffer_bytes, chosen.seconds, marks=marks)
        what = "marks" if marks else "no marks"
        print(
            f"{what:8}  {outcome.of_bottleneck:5.1%} of the bottleneck, Jain index {outcome.jain:.3f}, "
            f"{outcome.marked} marked, {outcome.notified} notifications",
            flush=True,
        )


if __name__ == "__main__":
    main()
