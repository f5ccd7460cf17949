"""Carries out one step of flows that share a link, and asks meanwhile how long its queue is.

Each flow comes from a node of its own, so the flows meet at the switch's port to the first node, and nowhere before. A
node without a flow sends that node a datagram every 10 ms and takes its round trip.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from typing_extensions import override

from rocelab.fabric.base import Launcher, LaunchError, Node, Running
from rocelab.results import FLOW_METRIC, QUEUE_LOST_METRIC, QUEUE_METRIC
from rocelab.study.execution import NO_REASON
from rocelab.study.sharing_steps import SharingStep
from rocelab.study.together import Connection, Moved
from rocelab.study.together_execution import Run, TogetherExecutor, request_of
from rocelab.tools import queue_probe
from rocelab.tools.base import ToolError, Value
from rocelab.tools.mesh import MESH_METRIC

#: How long the end that asks may take beyond the time for which it asks.
_PROBE_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SharingReading:
    """What each flow had, and what the datagrams met."""

    moved: Moved
    round_trips_ms: tuple[float | None, ...]
    """None for a datagram that never came back."""


class SharingExecutor(TogetherExecutor[SharingStep, SharingReading]):
    """Runs mixes of flows on the first nodes of a fabric."""

    @override
    def batches(self, step: SharingStep, nodes: Sequence[Node]) -> list[list[Connection]]:
        receiver, *senders, _ = nodes
        ports = self._launcher.free_ports(receiver, len(senders))
        return [
            [
                Connection(sender, receiver, method, request_of(step, sender, receiver, port))
                for sender, port, (_, method) in zip(senders, ports, step.flows, strict=True)
            ]
        ]

    @override
    def read(self, step: SharingStep, nodes: Sequence[Node], run: Run) -> SharingReading:
        probe = _Probe(self._launcher, nodes[-1], nodes[0], step)
        try:
            _, moved = run(probe.start)
            return SharingReading(moved, probe.round_trips_ms())
        finally:
            probe.stop()

    @override
    def values(self, step: SharingStep, reading: SharingReading) -> Iterator[Value]:
        moved = reading.moved
        yield Value(*MESH_METRIC, "total", sum(moved.mbps))
        for (name, _), mbps in zip(step.flows, moved.mbps, strict=True):
            yield Value(FLOW_METRIC, "Mbps", name, mbps)
        answered = sorted(each for each in reading.round_trips_ms if each is not None)
        for statistic, round_trip_ms in (
            ("median", median(answered)),
            ("p99", answered[(len(answered) - 1) * 99 // 100]),
            ("min", answered[0]),
        ):
            yield Value(QUEUE_METRIC, "ms", statistic, round_trip_ms)
        lost_percent = 100 * (1 - len(answered) / len(reading.round_trips_ms))
        yield Value(QUEUE_LOST_METRIC, "%", "total", lost_percent)


class _Probe:
    """Datagrams from one node to another and back, for as long as a step measures."""

    def __init__(self, launcher: Launcher, asking: Node, answering: Node, step: SharingStep) -> None:
        self._launcher = launcher
        self._asking, self._answering = asking, answering
        self._step = step
        self._running: list[Running] = []

    def start(self) -> None:
        (port,) = self._launcher.free_ports(self._answering, 1)
        answer = self._launcher.start(self._answering, queue_probe.command("answer", str(port)))
        self._running.append(answer)
        self._launcher.wait_until_listening(self._answering, answer, port, protocol="udp")
        address, seconds = self._answering.addresses[self._step.link.id], str(self._step.measured_s)
        command = queue_probe.command("ask", address, str(port), seconds)
        self._running.append(self._launcher.start(self._asking, command))

    def round_trips_ms(self) -> tuple[float | None, ...]:
        """Of each datagram; ToolError if none came back."""
        end = self._running[-1].wait(self._step.measured_s + _PROBE_LIMIT_S)
        if end.timed_out or end.exit_status != 0:
            raise ToolError(
                f"{self._asking.name} could not ask for the queue: {end.stderr.strip()[-200:] or NO_REASON}"
            )
        try:
            found: list[float | None] = json.loads(end.stdout)
        except ValueError:
            raise ToolError(f"{self._asking.name} printed no round trips: {end.stdout.strip()[-200:]}") from None
        if all(each is None for each in found):
            raise ToolError(f"none of {len(found)} datagrams that ask for the queue came back")
        return tuple(found)

    def stop(self) -> None:
        for each in self._running:
            with contextlib.suppress(LaunchError):
                each.stop()
