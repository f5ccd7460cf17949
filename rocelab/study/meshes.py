"""Carries out one step of many nodes that send at the same time: a full mesh, an incast, a bisection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from typing_extensions import override

from rocelab.fabric.base import Node
from rocelab.results import ParamValue
from rocelab.study.flows import flows
from rocelab.study.together import Connection, Moved
from rocelab.study.together_execution import Run, TogetherExecutor, request_of
from rocelab.study.together_steps import MeshStep
from rocelab.tools.base import Value
from rocelab.tools.mesh import MESH_METRIC


@dataclass(frozen=True, slots=True)
class MeshReading:
    """What all moved together, by node in the order of the nodes, in 10^6 bit/s."""

    nodes: tuple[str, ...]
    """Their names."""
    sent_mbps: tuple[float, ...]
    received_mbps: tuple[float, ...]
    moved: Moved


class MeshExecutor(TogetherExecutor[MeshStep, MeshReading]):
    """Runs meshes on the first nodes of a fabric."""

    @override
    def batches(self, step: MeshStep, nodes: Sequence[Node]) -> list[list[Connection]]:
        planned = flows(step.test, step.nodes)
        into = Counter(receiver for batch in planned for _, receiver in batch)
        ports = {at: iter(self._launcher.free_ports(nodes[at], count)) for at, count in into.items()}
        more = {"parallel": step.parallel, "traffic_class": step.traffic_class}

        def connection(sender: Node, receiver: Node, port: int) -> Connection:
            return Connection(sender, receiver, step.method, request_of(step, sender, receiver, port, **more))

        return [[connection(nodes[one], nodes[other], next(ports[other])) for one, other in batch] for batch in planned]

    @override
    def read(self, step: MeshStep, nodes: Sequence[Node], run: Run) -> MeshReading:
        connections, moved = run()
        sent_mbps, received_mbps = [0.0] * len(nodes), [0.0] * len(nodes)
        for each, mbps in zip(connections, moved.mbps, strict=True):
            sent_mbps[each.sender.index] += mbps
            received_mbps[each.receiver.index] += mbps
        return MeshReading(tuple(node.name for node in nodes), tuple(sent_mbps), tuple(received_mbps), moved)

    @override
    def params(self, reading: MeshReading) -> Mapping[str, ParamValue]:
        start_s = round(reading.moved.start_s, 3)
        return {"idle_connections": reading.moved.idle, "start_s": start_s, **super().params(reading)}

    @override
    def values(self, step: MeshStep, reading: MeshReading) -> Iterator[Value]:
        sent = reading.sent_mbps
        # A node that only receives is no slow sender, and one that only sends no slow receiver.
        senders = [sent[at] for at in sorted({sender for batch in flows(step.test, step.nodes) for sender, _ in batch})]
        yield Value(*MESH_METRIC, "total", sum(sent))
        for statistic, value in (("mean", fmean(senders)), ("min", min(senders)), ("max", max(senders))):
            yield Value("node_throughput_mbps", "Mbps", statistic, value)
        for metric, by_node in (("sent_mbps", sent), ("received_mbps", reading.received_mbps)):
            for node, value in zip(reading.nodes, by_node, strict=True):
                yield Value(metric, "Mbps", node, value)
