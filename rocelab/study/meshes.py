"""Carries out one step of many nodes that send at the same time: a full mesh, an incast, a bisection."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from typing_extensions import override

from rocelab.fabric.base import LaunchError, Node
from rocelab.results import ParamValue, Sample
from rocelab.study import network_events
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Setting,
    StepExecutor,
    now,
    sample_of,
)
from rocelab.study.flows import flows
from rocelab.study.steps import MeshStep
from rocelab.study.together import Connection, Moved, Together
from rocelab.tools.base import ToolError, Value
from rocelab.tools.mesh import MESH_METRIC, MeshRequest


@dataclass(frozen=True, slots=True)
class MeshReading:
    """What all moved together, by node in the order of the nodes, in 10^6 bit/s."""

    nodes: tuple[str, ...]
    """Their names."""
    sent_mbps: tuple[float, ...]
    received_mbps: tuple[float, ...]
    moved: Moved


class MeshExecutor(StepExecutor[MeshStep]):
    """Runs meshes on the first nodes of a fabric."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher

    @override
    def samples(
        self, step: MeshStep, execution: Execution[MeshReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, circumstances)

    @override
    def execute(self, step: MeshStep, log: Path | None) -> Execution[MeshReading]:
        """Run a step to its end. Every program is gone afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        nodes = self._nodes[: step.nodes]
        pairs = Together(self._launcher, nodes, step.link.id, self._batches(step))
        reading, error = None, None
        try:
            reading = _reading(nodes, pairs.connections, pairs.run(started_s + step.time_limit_s, log))
        except (LaunchError, ToolError) as failure:
            error = str(failure)
        finally:
            pairs.stop()
        first = pairs.connections[0]
        return Execution(
            reading=reading,
            error=error,
            hung=pairs.hung,
            command=shlex.join(step.method.client(first.request)),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _batches(self, step: MeshStep) -> list[list[Connection]]:
        planned = flows(step.test, step.nodes)
        into = Counter(receiver for batch in planned for _, receiver in batch)
        ports = {at: iter(self._launcher.free_ports(self._nodes[at], count)) for at, count in into.items()}
        return [
            [self._connection(step, self._nodes[one], self._nodes[other], next(ports[other])) for one, other in batch]
            for batch in planned
        ]

    def _connection(self, step: MeshStep, sender: Node, receiver: Node, port: int) -> Connection:
        link = step.link.id
        request = MeshRequest(
            size_bytes=step.size_bytes,
            parallel=step.parallel,
            depth=step.depth,
            measured_s=step.measured_s,
            margin_s=step.margin_s,
            traffic_class=step.traffic_class,
            server_address=receiver.addresses[link],
            client_interface=sender.interfaces[link],
            server_interface=receiver.interfaces[link],
            port=port,
            client_device=sender.devices.get(link),
            server_device=receiver.devices.get(link),
        )
        return Connection(sender, receiver, step.method, request)


def _reading(nodes: Sequence[Node], connections: Sequence[Connection], moved: Moved) -> MeshReading:
    sent_mbps, received_mbps = [0.0] * len(nodes), [0.0] * len(nodes)
    for each, mbps in zip(connections, moved.mbps, strict=True):
        sent_mbps[each.sender.index] += mbps
        received_mbps[each.receiver.index] += mbps
    return MeshReading(tuple(node.name for node in nodes), tuple(sent_mbps), tuple(received_mbps), moved)


def _samples(step: MeshStep, execution: Execution[MeshReading], circumstances: Circumstances) -> tuple[Sample, ...]:
    """Samples of all together and of every node; exactly one, without a value, if the step failed."""
    params: dict[str, ParamValue] = {
        "connections": step.connections,
        "parallel": step.parallel,
        "depth": step.depth,
        "measured_s": step.measured_s,
        "margin_s": step.margin_s,
    }

    def sample(value: Value | None, error: str | None = None) -> Sample:
        return sample_of(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=MESH_METRIC,
            params=params,
            value=value,
            error=error,
        )

    reading = execution.reading
    if reading is None:
        return (sample(None, execution.error or NO_REASON),)
    moved = reading.moved
    params |= {"idle_connections": moved.idle}
    params |= {"start_s": round(moved.start_s, 3), "cpu_s": round(moved.cpu_s, 3)}
    sent = reading.sent_mbps
    # A node that only receives is no slow sender, and one that only sends no slow receiver.
    senders = [sent[at] for at in sorted({sender for batch in flows(step.test, step.nodes) for sender, _ in batch})]
    values = [
        Value(*MESH_METRIC, "total", sum(sent)),
        Value("wire_mbps", "Mbps", "total", moved.wire_mbps),
        *(
            Value("node_throughput_mbps", "Mbps", statistic, value)
            for statistic, value in (
                ("mean", fmean(senders)),
                ("min", min(senders)),
                ("max", max(senders)),
            )
        ),
        *(
            Value(metric, "Mbps", node, value)
            for metric, by_node in (("sent_mbps", sent), ("received_mbps", reading.received_mbps))
            for node, value in zip(reading.nodes, by_node, strict=True)
        ),
        *network_events.values(moved.events, reading.nodes),
    ]
    return tuple(sample(value) for value in values)
