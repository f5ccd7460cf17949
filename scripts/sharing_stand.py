"""Nodes on which scripts/sharing.py starts pairs of programs, and what it reads of them while they run.

What a stream has received is read at its receiver, not taken from what its program says. The
programs of one measurement begin and end at different times, and all are to be looked at over the
same seconds.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from rocelab.fabric.base import LinkProfile, Node, Running
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.launch.congestion import CongestionControls
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.base import Output, Reading, Request
from rocelab.tools.interconnects import urxe
from rocelab.tools.perftest import Perftest

DIRECT = LinkProfile("direct", "direct")
SWITCH = LinkProfile("switch", "bridge", rate_mbps=1000)
#: As in the study `bars`.
WIDE = LinkProfile("wide", "direct", mtu_bytes=9000)
NODES = ("node0", "node1", "node2", "node3")
#: BTH and ICRC (IBTA 1.7, 9.2 and 7.8.1), all that a packet of a SEND has besides payload.
PACKET_OVERHEAD_BYTES = 12 + 4
#: Path MTU on a link of 1500, so what a packet brings that has come before.
PATH_MTU_BYTES = 1024
#: More than any stream has time for.
ENDLESS = 50_000_000
LIMIT_S = 20.0
START_LIMIT_S = 5.0
_PID = re.compile(r"pid=(\d+)")
_RECEIVED = re.compile(r"\bbytes_received:(\d+)")


class SharingError(Exception):
    """Something could not be measured, starved or hung."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Payload that had been received at a time, by the pid of the receiver."""

    at_s: float
    bytes_by_pid: Mapping[int, int]


def snapshots(said: str) -> list[Snapshot]:
    """What the watch on a node printed."""
    found = []
    for part in said.split("@time ")[1:]:
        at, rest = part.split("\n", 1)
        verbs, sockets = rest.split("@tcp\n", 1)
        # perftest has a socket, too, by which its ends find each other.
        found.append(Snapshot(float(at), _by_sockets(sockets) | _by_verbs(verbs)))
    return found


def _by_verbs(report: str) -> dict[int, int]:
    processes = json.loads(report)["processes"] if report.strip() else []
    return {
        process["pid"]: sum(_payload_bytes(device["counters"]) for device in process["devices"])
        for process in processes
    }


def _payload_bytes(counters: Mapping[str, int]) -> int:
    overhead_bytes = PACKET_OVERHEAD_BYTES * counters["rx_packets"]
    return counters["rx_bytes"] - overhead_bytes - PATH_MTU_BYTES * counters["duplicate_request"]


def _by_sockets(report: str) -> dict[int, int]:
    by_pid: dict[int, int] = {}
    for line in report.splitlines():
        pid, received = _PID.search(line), _RECEIVED.search(line)
        if pid and received:
            by_pid[int(pid[1])] = by_pid.get(int(pid[1]), 0) + int(received[1])
    return by_pid


def rates_mbps(taken: Sequence[Snapshot], pids: Sequence[int]) -> list[list[float]]:
    """Of each receiver, between each snapshot and the next. SharingError if one is in none of them."""
    missing = [pid for pid in pids if any(pid not in each.bytes_by_pid for each in taken)]
    if missing:
        raise SharingError(f"{len(missing)} of {len(pids)} streams had ended, or had no connection yet")
    return [
        [
            (after.bytes_by_pid[pid] - before.bytes_by_pid[pid]) * 8 / 1e6 / (after.at_s - before.at_s)
            for before, after in itertools.pairwise(taken)
        ]
        for pid in pids
    ]


class Pair(Protocol):
    """What of a `Method` it takes to run one: also of programs that no study has."""

    @property
    def tool(self) -> str:
        """The program's name."""

    def server(self, request: Request) -> Sequence[str]:
        """The command line of the end that listens."""

    def client(self, request: Request) -> Sequence[str]:
        """The command line of the end that connects and reports."""

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """The values, or ToolError."""


class Stand:
    """A fabric with a core for what receives (the second node) and one for everything else."""

    def __init__(self, fabric: EmulatedFabric) -> None:
        self.nodes = fabric.nodes
        self.receiver = fabric.nodes[1]
        self._launcher = NamespaceLauncher(fabric)
        self._controls = CongestionControls(fabric.nodes, self._launcher)
        self._cores = sorted(os.sched_getaffinity(0))
        self._port = 18000

    def choose(self, link: LinkProfile, control: str) -> None:
        """Give TCP over a link this congestion control from now on."""
        self._controls.choose(link.id, control)

    def port(self) -> int:
        """One that no program before has had, so that none is waited for."""
        self._port += 1
        return self._port

    def start(self, node: Node, argv: Sequence[str]) -> Running:
        """A program on its node's core."""
        core = self._cores[-1] if node is self.receiver else self._cores[0]
        return self._launcher.start(node, argv, cores=(core,))

    def finished(self, method: Pair, request: Request) -> Reading:
        """A pair from the first node to the receiver, to its end."""
        with ExitStack() as ends:
            server = self._listening(method, request, ends)
            client = self.start(self.nodes[0], method.client(request))
            ends.callback(client.stop)
            client_end = client.wait(LIMIT_S)
            if client_end.timed_out:
                raise SharingError(f"{method.tool} hung for {LIMIT_S:g} s and was stopped")
            server_end = server.wait(LIMIT_S) if client_end.exit_status == 0 else server.stop()
            outputs = (Output(each.stdout, each.stderr, each.exit_status) for each in (client_end, server_end))
            return method.read(request, *outputs)

    def request(
        self, link: LinkProfile, sender: Node, size_bytes: int, messages: int = ENDLESS, address: str | None = None
    ) -> Request:
        """Of a pair from a sender to the receiver."""
        return Request(
            size_bytes=size_bytes,
            messages=messages,
            server_address=address or self.receiver.addresses[link.id],
            client_interface=sender.interfaces[link.id],
            server_interface=self.receiver.interfaces[link.id],
            port=self.port(),
        )

    def _listening(self, method: Pair, request: Request, ends: ExitStack) -> Running:
        server = self.start(self.receiver, method.server(request))
        ends.callback(server.stop)
        self._launcher.wait_until_listening(self.receiver, server, request.port)
        return server

    def streams(self, pairs: Sequence[tuple[Pair, Node, Request]], ends: ExitStack) -> list[int]:
        """Start streams that all end with `ends`. Returns the pids of their receivers, once each has received."""
        running: list[Running] = []
        pids = []
        for method, _, request in pairs:
            server = self._listening(method, request, ends)
            running.append(server)
            pids.append(server.pid)
        for method, sender, request in pairs:
            client = self.start(sender, method.client(request))
            ends.callback(client.stop)
            running.append(client)
        ends.callback(_kill, running)
        end_s = time.monotonic() + START_LIMIT_S
        while silent := [pid for pid in pids if self.watch(1, 0).result()[0].bytes_by_pid.get(pid, 0) < PATH_MTU_BYTES]:
            if time.monotonic() > end_s:
                raise SharingError(f"{len(silent)} of {len(pids)} streams did not begin within {START_LIMIT_S:g} s")
        return pids

    def watch(self, times: int, every_s: float) -> Watch:
        """Look at the receiver so many times, without a core of its own."""
        look = f"date +'@time %s.%N'; {urxe().name} stat --json; echo @tcp; ss -tinpHO"
        script = f"for each in $(seq {times}); do {look}; [ $each = {times} ] || sleep {every_s}; done"
        return Watch(self._launcher.start(self.receiver, ["sh", "-c", script]))


class Watch:
    """Snapshots that are being taken."""

    def __init__(self, running: Running) -> None:
        self._running = running

    def result(self) -> list[Snapshot]:
        """All of them, once they are there."""
        end = self._running.wait(LIMIT_S)
        if end.exit_status != 0:
            raise SharingError(
                f"the receivers could not be looked at: {end.stderr.strip() or end.stdout.strip()[-200:]}"
            )
        return snapshots(end.stdout)


def _kill(running: Sequence[Running]) -> None:
    """All at once, so that the first to end does not leave its share to the last."""
    for each in running:
        each.signal(signal.SIGKILL)


def soft_roce(*, events: bool = False) -> Perftest:
    """A stream of SENDs."""
    return Perftest("send", "bandwidth", urxe(), events=events)
