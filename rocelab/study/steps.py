"""What a plan is made of: steps. Each is one start of programs, and yields the samples of its keys.

A `PairStep` is a server and a client, one size; a `RoundStep` is several of those between different nodes. A `JobStep`
is one start of an MPI program on any number of nodes, which measures all of its sizes: a start takes seconds, so a
start for each size would measure little else. A `CloudStep` is a client of a system of daemons. Many pairs at
the same time are in `together_steps`.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.launch.mpi import Mpi, RankOrder, Transport
from rocelab.results import PAIRS_LEVEL, StepKey
from rocelab.tools.base import CPU_TEST, MAIN_METRIC, Executable, JobMethod, JobRequest, Method, Test
from rocelab.tools.cloud import CloudMethod
from rocelab.tools.own import OwnMpi

#: perftest and rocelab-sock keep a time for every message.
_MESSAGES_MAX = 50_000

#: What the test of CPU use is held against TCP by: cores in use say little without what was moved
#: meanwhile.
_CPU_METRICS = (("cpu_client_us_per_mib", "us/MiB"), ("cpu_server_us_per_mib", "us/MiB"))

#: To change how a link receives, and to change it back: two small programs on each node, twice. For
#: planning only.
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
    @abstractmethod
    def place(self) -> tuple[object, ...]:
        """What steps of its kind have in common that are compared with each other, besides link and repetition."""

    @property
    def sizes_bytes(self) -> tuple[int, ...]:
        """The message sizes, ascending."""
        return tuple(key.size_bytes for key in self.keys if key.size_bytes is not None)

    @property
    def name(self) -> str:
        """What its log is called, after its number."""
        size = f"-{self.sizes_bytes[0]}" if len(self.keys) == 1 and self.sizes_bytes else ""
        return f"{'-'.join(self.series)}{size}-{self.repetition}"

    @property
    def compared(self) -> tuple[tuple[str, str], ...]:
        """Metrics, with their units, by which interconnects are held against each other while time is left."""
        return ()

    @property
    def mpi_used(self) -> tuple[Mpi, ...]:
        """The MPI implementations that it needs."""
        return ()

    @property
    def built_by(self) -> tuple[str, tuple[str, ...]] | None:
        """A folder, and the command that has to run there before anything is started."""
        return None

    @property
    def head_start_s(self) -> float:
        """How long it sleeps at its beginning, so that it can be started while others are measured."""
        return 0.0

    def paced(self, factor: float) -> Step:  # noqa: ARG002, most steps take as long as they take
        """The same as it should be if a message takes `factor` times as long as was planned."""
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleStep(Step):
    """A step that measures one size, or what has none."""

    @property
    @abstractmethod
    def key(self) -> StepKey:
        """What identifies the step in the results."""

    @property
    @override
    def keys(self) -> tuple[StepKey, ...]:
        return (self.key,)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairStep(SingleStep):
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
    @override
    def key(self) -> StepKey:
        return StepKey(
            self.link.id, self.interconnect, "network", self.test, self.variant, self.size_bytes, self.repetition
        )

    @property
    @override
    def test_name(self) -> str:
        return self.test

    @property
    @override
    def tool(self) -> str:
        return self.method.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return self.method.executables

    @property
    @override
    def expected_s(self) -> float:
        changing_s = 0.0 if peers.reception_of(self.variant) == peers.USUAL else _RECEPTION_S
        return changing_s + self.method.overhead_s + self.messages * self.message_s

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return self.sizes_bytes

    @property
    @override
    def compared(self) -> tuple[tuple[str, str], ...]:
        return _CPU_METRICS if self.test == CPU_TEST else (MAIN_METRIC[self.test],)

    @property
    @override
    def head_start_s(self) -> float:
        return self.method.head_start_s

    @override
    def paced(self, factor: float) -> PairStep:
        messages = fitting_messages(self.method, self.message_s * factor, self.point_s)
        return dataclasses.replace(self, messages=messages)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, self.test, self.interconnect, self.variant)


def fitting_messages(method: Method, message_s: float, point_s: float) -> int:
    """How many messages take about `point_s`, within what the program takes."""
    return max(method.messages_min, min(_MESSAGES_MAX, round(point_s / message_s)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStep(SingleStep):
    """One round of all pairs: as many pairs of nodes as share none, each with the same program pair, at once."""

    pair: PairStep
    """What is measured between the nodes of each pair."""
    nodes: int
    part: int
    """The number of the round."""
    pairs: tuple[tuple[int, int], ...]
    """The nodes of client and server, by their index."""

    @property
    @override
    def key(self) -> StepKey:
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level=PAIRS_LEVEL,
            test=self.pair.test,
            variant=self.variant,
            size_bytes=self.pair.size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            part=self.part,
        )

    @property
    @override
    def test_name(self) -> str:
        return self.pair.test

    @property
    @override
    def tool(self) -> str:
        return self.pair.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return self.pair.executables

    @property
    @override
    def expected_s(self) -> float:
        return self.pair.expected_s

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.nodes, self.pair.size_bytes, self.part)

    @property
    @override
    def name(self) -> str:
        return f"{'-'.join(self.series)}-round-{self.part}-{self.repetition}"

    @override
    def paced(self, factor: float) -> RoundStep:
        return dataclasses.replace(self, pair=self.pair.paced(factor))

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, PAIRS_LEVEL, self.pair.test, self.interconnect, self.variant, f"{self.nodes}-nodes")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStep(Step):
    """One start of an MPI program, which measures a test at all of its sizes, or once if it has none."""

    level: Literal["mpi", "nas", "program"] = "mpi"
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
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Added to the environment of its processes."""

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return self.nodes * self.ranks_per_node

    @property
    @override
    def keys(self) -> tuple[StepKey, ...]:
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
    @override
    def test_name(self) -> str:
        return self.method.test

    @property
    @override
    def tool(self) -> str:
        return self.method.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        starter = Executable(str(self.mpi.mpiexec), remedy=self.mpi.remedy)
        return (*self.method.executables, starter, *((self.device,) if self.device else ()))

    @property
    @override
    def expected_s(self) -> float:
        return self.mpi.start_s(self.ranks) + self.measuring_s

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.level, self.test_name, self.nodes, self.ranks)

    @property
    @override
    def compared(self) -> tuple[tuple[str, str], ...]:
        return (self.method.main_metric,)

    @property
    @override
    def mpi_used(self) -> tuple[Mpi, ...]:
        return (self.mpi,)

    @property
    @override
    def built_by(self) -> tuple[str, tuple[str, ...]] | None:
        return self.method.built_by if isinstance(self.method, OwnMpi) else None

    @property
    @override
    def series(self) -> tuple[str, ...]:
        scale = f"{self.nodes}x{self.ranks_per_node}"
        return (self.link.id, self.level, self.method.test, self.interconnect, self.variant, scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudStep(SingleStep):
    """One run of a client on HDFS, HBase or Spark."""

    method: CloudMethod
    nodes: int
    """The first has the masters and the client, every other one is a worker."""
    size_bytes: int

    @property
    @override
    def key(self) -> StepKey:
        # Its processes are the workers.
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
    @override
    def test_name(self) -> str:
        return self.method.test

    @property
    @override
    def tool(self) -> str:
        return self.method.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return self.method.executables

    @property
    @override
    def expected_s(self) -> float:
        # That the daemons have to start is not in it: most steps find them running.
        return self.method.seconds

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return self.sizes_bytes

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, self.method.test, self.interconnect, self.variant, f"{self.nodes}-nodes")
