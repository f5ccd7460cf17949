"""Carries out one step of pairs of programs side by side between two nodes.

With processors of their own, no two programs share one. Else all programs of a node share that node's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from typing_extensions import override

from rocelab.fabric.base import Node
from rocelab.launch.processors import count_cores
from rocelab.results import PAIR_METRIC, ParamValue
from rocelab.study.side_by_side_steps import SideBySideStep
from rocelab.study.together import Connection, Moved
from rocelab.study.together_execution import Run, TogetherExecutor, request_of
from rocelab.tools.base import Value
from rocelab.tools.mesh import MESH_METRIC


@dataclass(frozen=True, slots=True)
class SideBySideReading:
    """What each pair moved, and where its programs ran."""

    moved: Moved
    client_cores: tuple[int, ...]
    server_cores: tuple[int, ...]


class SideBySideExecutor(TogetherExecutor[SideBySideStep, SideBySideReading]):
    """Runs pairs from the first node of a fabric to the second."""

    @override
    def batches(self, step: SideBySideStep, nodes: Sequence[Node]) -> list[list[Connection]]:
        sender, receiver = nodes
        ports = self._launcher.free_ports(receiver, step.pairs)
        return [
            [
                Connection(
                    sender,
                    receiver,
                    step.method,
                    request_of(step, sender, receiver, port, parallel=step.queue_pairs),
                    client_cores=(client_core,),
                    server_cores=(server_core,),
                )
            ]
            for port, client_core, server_core in zip(ports, *self._cores(step, nodes), strict=True)
        ]

    def _cores(self, step: SideBySideStep, nodes: Sequence[Node]) -> Sequence[Sequence[int]]:
        """Of each node, one for each pair."""
        if step.processors == "own":
            return self._launcher.separate_cores(nodes, step.pairs)
        return [[self._launcher.core(node, step.link.id)] * step.pairs for node in nodes]

    @override
    def read(self, step: SideBySideStep, nodes: Sequence[Node], run: Run) -> SideBySideReading:
        connections, moved = run()
        client_cores = tuple(core for each in connections for core in each.client_cores)
        server_cores = tuple(core for each in connections for core in each.server_cores)
        return SideBySideReading(moved, client_cores, server_cores)

    @override
    def params(self, reading: SideBySideReading) -> Mapping[str, ParamValue]:
        return {
            "client_cores": " ".join(map(str, reading.client_cores)),
            "server_cores": " ".join(map(str, reading.server_cores)),
            "cores": count_cores((*reading.client_cores, *reading.server_cores)),
            "start_s": round(reading.moved.start_s, 3),
            **super().params(reading),
        }

    @override
    def values(self, step: SideBySideStep, reading: SideBySideReading) -> Iterator[Value]:
        every = reading.moved.mbps
        yield Value(*MESH_METRIC, "total", sum(every))
        yield Value("message_rate_per_s", "1/s", "total", sum(every) * 1e6 / 8 / step.size_bytes)
        for statistic, mbps in (("mean", fmean(every)), ("min", min(every)), ("max", max(every))):
            yield Value(PAIR_METRIC, "Mbps", statistic, mbps)
