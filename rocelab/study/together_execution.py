"""What the executors have in common whose steps are pairs of programs that send at the same time."""

from __future__ import annotations

import shlex
import time
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from typing_extensions import override

from rocelab.fabric.base import LaunchError, Node
from rocelab.results import ParamValue, Sample
from rocelab.study import network_events
from rocelab.study.execution import NO_REASON, Circumstances, Execution, Setting, StepExecutor, now, sample_of
from rocelab.study.together import Connection, Meanwhile, Moved, Together
from rocelab.study.together_steps import TogetherStep
from rocelab.tools.base import ToolError, Value
from rocelab.tools.mesh import MESH_METRIC, MeshRequest


class HasMoved(Protocol):
    """A reading of such a step."""

    @property
    def moved(self) -> Moved:
        """What came of the connections."""


TogetherT = TypeVar("TogetherT", bound=TogetherStep)
MovedT = TypeVar("MovedT", bound=HasMoved)


class TogetherExecutor(StepExecutor[TogetherT], Generic[TogetherT, MovedT]):
    """Starts the pairs of a step on the first nodes of a fabric, and makes samples of what they moved."""

    @override
    def __init__(self, setting: Setting) -> None:
        self._nodes = setting.fabric.nodes
        self._launcher = setting.launcher

    @abstractmethod
    def batches(self, step: TogetherT, nodes: Sequence[Node]) -> list[list[Connection]]:
        """The connections of a step; those of a batch start their clients at the same time."""

    @abstractmethod
    def read(self, step: TogetherT, nodes: Sequence[Node], run: Run) -> MovedT:
        """Run the connections, and whatever belongs to the step beside them. LaunchError or ToolError if that fails."""

    @abstractmethod
    def values(self, step: TogetherT, reading: MovedT) -> Iterable[Value]:
        """What is measured, besides what left the nodes and what happened to packets."""

    def params(self, reading: MovedT) -> Mapping[str, ParamValue]:
        """What is noted of a reading."""
        return {"cpu_s": round(reading.moved.cpu_s, 3)}

    @override
    def samples(
        self, step: TogetherT, execution: Execution[MovedT], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        """Samples of everything that was measured; exactly one, without a value, if the step failed."""
        reading = execution.reading
        params = {**step.params, **({} if reading is None else self.params(reading))}

        def sample(value: Value | None, error: str | None = None) -> Sample:
            main, key = MESH_METRIC, step.key
            return sample_of(
                step, execution, circumstances, key=key, main_metric=main, params=params, value=value, error=error
            )

        if reading is None:
            return (sample(None, execution.error or NO_REASON),)
        nodes = [node.name for node in self._nodes_of(step)]
        values = [
            *self.values(step, reading),
            Value("wire_mbps", "Mbps", "total", reading.moved.wire_mbps),
            *network_events.values(reading.moved.events, nodes),
        ]
        return tuple(map(sample, values))

    @override
    def execute(self, step: TogetherT, log: Path | None) -> Execution[MovedT]:
        """Run a step to its end. Every program is gone afterwards, also when this is interrupted."""
        started_at, started_s = now(), time.monotonic()
        nodes = self._nodes_of(step)
        try:
            pairs = Together(self._launcher, nodes, step.link.id, self.batches(step, nodes))
        except LaunchError as failure:
            return Execution(error=str(failure), started_at=started_at)

        def run(meanwhile: Meanwhile | None = None) -> tuple[Sequence[Connection], Moved]:
            return pairs.connections, pairs.run(started_s + step.time_limit_s, log, meanwhile)

        reading, error = None, None
        try:
            reading = self.read(step, nodes, run)
        except (LaunchError, ToolError) as failure:
            error = str(failure)
        finally:
            pairs.stop()
        first = pairs.connections[0]
        return Execution(
            reading=reading,
            error=error,
            hung=pairs.hung,
            command=shlex.join(first.method.client(first.request)),
            started_at=started_at,
            duration_s=time.monotonic() - started_s,
        )

    def _nodes_of(self, step: TogetherT) -> Sequence[Node]:
        return self._nodes[: step.scale[0]]


class Run(Protocol):
    """Runs all connections of a step, and tells what came of them."""

    def __call__(self, meanwhile: Meanwhile | None = None) -> tuple[Sequence[Connection], Moved]:
        """`meanwhile` is called when the time that is measured begins. LaunchError or ToolError if one did not well."""


def request_of(
    step: TogetherStep, sender: Node, receiver: Node, port: int, *, parallel: int = 1, traffic_class: int = 0
) -> MeshRequest:
    """One of the connections of a step, as its program is told."""
    link = step.link.id
    return MeshRequest(
        size_bytes=step.size_bytes,
        parallel=parallel,
        depth=step.depth,
        measured_s=step.measured_s,
        margin_s=step.margin_s,
        traffic_class=traffic_class,
        server_address=receiver.addresses[link],
        client_interface=sender.interfaces[link],
        server_interface=receiver.interfaces[link],
        port=port,
        client_device=sender.devices.get(link),
        server_device=receiver.devices.get(link),
    )
