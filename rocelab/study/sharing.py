"""Carries out one step of flows that share a link, and asks meanwhile how long its queue is.

Each flow comes from a node of its own, so the flows meet at the switch's port to the first node, and nowhere before. A
node without a flow sends that node a datagram every 10 ms and takes its round trip.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from typing_extensions import override

from rocelab.fabric.base import Launcher, LaunchError, Node, Running
from rocelab.results import FLOW_METRIC, QUEUE_LOST_METRIC, QUEUE_METRIC, ParamValue, Sample
from rocelab.study import network_events
from rocelab.study.execution import NO_REASON, Circumstances, Execution, Setting, StepExecutor, now, sample_of
from rocelab.study.sharing_steps import SharingStep
from rocelab.study.together import Connection, Moved, Together
from rocelab.tools import queue_probe
from rocelab.tools.base import ToolError, Value
from rocelab.tools.mesh import MESH_METRIC, MeshRequest

#: How long the end that asks may take beyond the time for which it asks.
_PROBE_LIMIT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class SharingReading:
    """What each flow had, and what the datagrams met."""

    moved: Moved
    round_trips_ms: tuple[float | None, ...]
    """None for a datagram that never came back."""


class SharingExecutor(StepExecutor[SharingStep]):
    """Runs mixes of flows on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher

    @override
    def samples(
        self, step: SharingStep, execution: Execution[SharingReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, circumstances, [node.name for node in self._nodes[: step.nodes]])

    @override
    def execute(self, step: SharingStep, log: Path | None) -> Execution[SharingReading]:
        started_at, started_s = now(), time.monotonic()
        nodes = self._nodes[: step.nodes]
        pairs = Together(self._launcher, nodes, step.link.id, [self._connections(step)])
        probe = _Probe(self._launcher, nodes[-1], nodes[0], step)
        reading, error = None, None
        try:
            moved = pairs.run(started_s + step.time_limit_s, log, probe.start)
            reading = SharingReading(moved, probe.round_trips_ms())
        except (LaunchError, ToolError) as failure:
            error = str(failure)
        finally:
            pairs.stop()
            probe.stop()
        first = pairs.connections[0]
        return Execution(
            reading=reading,
            error=error,
            hung=pairs.hung,
            command=shlex.join(first.method.client(first.request)),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _connections(self, step: SharingStep) -> list[Connection]:
        receiver, *senders = self._nodes[: step.nodes - 1]
        ports = self._launcher.free_ports(receiver, len(senders))
        return [
            Connection(sender, receiver, method, _request(step, sender, receiver, port))
            for sender, port, (_, method) in zip(senders, ports, step.flows, strict=True)
        ]


def _request(step: SharingStep, sender: Node, receiver: Node, port: int) -> MeshRequest:
    link = step.link.id
    return MeshRequest(
        size_bytes=step.size_bytes,
        parallel=1,
        depth=step.depth,
        measured_s=step.measured_s,
        margin_s=step.margin_s,
        traffic_class=0,
        server_address=receiver.addresses[link],
        client_interface=sender.interfaces[link],
        server_interface=receiver.interfaces[link],
        port=port,
    )


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


def _samples(
    step: SharingStep, execution: Execution[SharingReading], circumstances: Circumstances, nodes: Sequence[str]
) -> tuple[Sample, ...]:
    """Samples of all together, of every flow and of the queue; exactly one, without a value, if the step failed."""
    params: dict[str, ParamValue] = {"depth": step.depth, "measured_s": step.measured_s, "margin_s": step.margin_s}

    def sample(value: Value | None, error: str | None = None) -> Sample:
        key = step.key
        return sample_of(
            step, execution, circumstances, key=key, main_metric=MESH_METRIC, params=params, value=value, error=error
        )

    reading = execution.reading
    if reading is None:
        return (sample(None, execution.error or NO_REASON),)
    params["cpu_s"] = round(reading.moved.cpu_s, 3)
    return tuple(map(sample, _values(step, reading, nodes)))


def _values(step: SharingStep, reading: SharingReading, nodes: Sequence[str]) -> Iterator[Value]:
    moved = reading.moved
    yield Value(*MESH_METRIC, "total", sum(moved.mbps))
    yield Value("wire_mbps", "Mbps", "total", moved.wire_mbps)
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
    yield from network_events.values(moved.events, nodes)
