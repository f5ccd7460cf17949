"""What a plan is made of: steps. Each is one start of programs, and yields the samples of its keys.

A `PairStep` is a server and a client, one size. A `JobStep` is one start of an MPI program on any number of nodes,
which measures all of its sizes: a start takes seconds, so a start for each size would measure little else. A
`MeshStep` is many pairs at the same time. A `CloudStep` is a client of a system of daemons.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.launch.mpi import Mpi, RankOrder, Transport
from rocelab.results import MESH_TEST, StepKey
from rocelab.tools.base import Executable, JobMethod, JobRequest, Method, Test
from rocelab.tools.cloud import CloudMethod
from rocelab.tools.mesh import MeshMethod

#: perftest and rocelab-sock keep a time for every message.
_MESSAGES_MAX = 50_000
#: How many pairs of a mesh start and end at the same time, for planning only.
_CORES_ASSUMED = 2

#: To change how a link receives, and to change it back: two small programs on each node, twice. For planning only.
_RECEPTION_S = 0.15


@dataclass(frozen=True, slots=True, kw_only=True)
class Step(ABC):
    """What every step is, whatever it starts."""

    link: LinkProfile
    interconnect: str
    variant: str
    repetition: int
    time_limit_s: float

    @property
    @abstractmethod
    def test_name(self) -> str:
        """The test as samples state it."""

    @property
    @abstractmethod
    def keys(self) -> tuple[StepKey, ...]:
        """What its samples are identified by: one for each size (None for a test without sizes)."""

    @property
    @abstractmethod
    def expected_s(self) -> float:
        """About how long it takes from beginning to end."""

    @property
    @abstractmethod
    def tool(self) -> str:
        """The measured program, as samples state it."""

    @property
    @abstractmethod
    def executables(self) -> tuple[Executable, ...]:
        """All it starts, the measured program first."""

    @property
    @abstractmethod
    def series(self) -> tuple[str, ...]:
        """All sizes and repetitions of one thing on one link have the same."""

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """The message sizes, ascending."""
        return tuple(key.size_bytes for key in self.keys if key.size_bytes is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStep(Step):
    """One measurement of the network level: one program pair, one size, once."""

    test: Test
    method: Method
    size_bytes: int
    messages: int
    message_s: float
    """What was taken for the time of one message."""
    point_s: float
    """About how long the timed region is to be."""

    @property
    def key(self) -> StepKey:
        """What identifies the step in the results."""
        return StepKey(
            self.link.id, self.interconnect, "network", self.test, self.variant, self.size_bytes, self.repetition
        )

    @property
    def keys(self) -> tuple[StepKey, ...]:
        """Its only key."""
        return (self.key,)

    @property
    def test_name(self) -> str:
        """See Step."""
        return self.test

    @property
    def tool(self) -> str:
        """See Step."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """See Step."""
        return self.method.executables

    @property
    def expected_s(self) -> float:
        """See Step."""
        changing_s = 0.0 if peers.reception_of(self.variant) == peers.USUAL else _RECEPTION_S
        return changing_s + self.method.overhead_s + self.messages * self.message_s

    def paced(self, factor: float) -> PairStep:
        """The same with a fitting number of messages, if a message takes `factor` times as long as was planned."""
        messages = fitting_messages(self.method, self.message_s * factor, self.point_s)
        return dataclasses.replace(self, messages=messages)

    @property
    def series(self) -> tuple[str, ...]:
        """See Step."""
        return (self.link.id, self.test, self.interconnect, self.variant)


def fitting_messages(method: Method, message_s: float, point_s: float) -> int:
    """How many messages take about `point_s`, within what the program takes."""
    return max(method.messages_min, min(_MESSAGES_MAX, round(point_s / message_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep(Step):
    """One start of an MPI program, which measures a test at all of its sizes, or once if it has none."""

    level: Literal["mpi", "nas"] = "mpi"
    method: JobMethod
    mpi: Mpi
    transport: Transport
    request: JobRequest
    device: Executable | None
    """urxe, if it is what gives the program its device."""
    nodes: int
    ranks_per_node: int
    mapping: RankOrder
    measuring_s: float
    """About how long it measures, once it has started."""

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return self.nodes * self.ranks_per_node

    @property
    def keys(self) -> tuple[StepKey, ...]:
        """One for each size; exactly one for a test without sizes."""
        return tuple(self.key(size_bytes) for size_bytes in self.request.points)

    def key(self, size_bytes: int | None) -> StepKey:
        """What identifies the samples of one size."""
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level=self.level,
            test=self.method.test,
            variant=self.variant,
            size_bytes=size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=self.ranks,
        )

    @property
    def test_name(self) -> str:
        """See Step."""
        return self.method.test

    @property
    def tool(self) -> str:
        """See Step."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """See Step."""
        starter = Executable(str(self.mpi.mpiexec), remedy=self.mpi.remedy)
        return (*self.method.executables, starter, *((self.device,) if self.device else ()))

    @property
    def expected_s(self) -> float:
        """See Step."""
        return self.mpi.start_s(self.ranks) + self.measuring_s

    @property
    def series(self) -> tuple[str, ...]:
        """See Step."""
        scale = f"{self.nodes}x{self.ranks_per_node}"
        return (self.link.id, self.level, self.method.test, self.interconnect, self.variant, scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshStep(Step):
    """One start of a mesh: a pair of programs from each of so many nodes to every other, all at the same time."""

    method: MeshMethod
    nodes: int
    size_bytes: int
    parallel: int
    depth: int
    measured_s: int
    margin_s: int
    traffic_class: int

    @property
    def connections(self) -> int:
        """How many pairs of programs there are."""
        return self.nodes * (self.nodes - 1)

    @property
    def key(self) -> StepKey:
        """What identifies the step in the results."""
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level="network",
            test=MESH_TEST,
            variant=self.variant,
            size_bytes=self.size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=2 * self.connections,
        )

    @property
    def keys(self) -> tuple[StepKey, ...]:
        """Its only key."""
        return (self.key,)

    @property
    def test_name(self) -> str:
        """See Step."""
        return MESH_TEST

    @property
    def tool(self) -> str:
        """See Step."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """See Step."""
        return self.method.executables

    @property
    def expected_s(self) -> float:
        """See Step."""
        return self.measured_s + 2 * self.margin_s + 1 + self.connections * self.method.pair_s / _CORES_ASSUMED

    @property
    def series(self) -> tuple[str, ...]:
        """See Step."""
        return (self.link.id, MESH_TEST, self.interconnect, self.variant, f"{self.nodes}-nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStep(Step):
    """One run of a client on HDFS, HBase or Spark."""

    method: CloudMethod
    nodes: int
    """The first has the masters and the client, every other one is a worker."""
    size_bytes: int

    @property
    def key(self) -> StepKey:
        """What identifies the step in the results. Its processes are the workers."""
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level="cloud",
            test=self.method.test,
            variant=self.variant,
            size_bytes=self.size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=self.nodes - 1,
        )

    @property
    def keys(self) -> tuple[StepKey, ...]:
        """Its only key."""
        return (self.key,)

    @property
    def test_name(self) -> str:
        """See Step."""
        return self.method.test

    @property
    def tool(self) -> str:
        """See Step."""
        return self.method.tool

    @property
    def executables(self) -> tuple[Executable, ...]:
        """See Step."""
        return self.method.executables

    @property
    def expected_s(self) -> float:
        """See Step. That the daemons have to start is not in it: most steps find them running."""
        return self.method.seconds

    @property
    def series(self) -> tuple[str, ...]:
        """See Step."""
        return (self.link.id, self.method.test, self.interconnect, self.variant, f"{self.nodes}-nodes")
