"""What a study file of the virtual fabric may say. docs/simulator.md explains every key; units are in the names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, PositiveInt, Tag

from rocelab import profiles
from rocelab.study.schema import FLOWS_TAG, LEVEL_TAGS
from rocelab.study.tables import RANKS_PER_NODE_MAX, Name, Sizes, every_size_bytes_of
from rocelab.tools import nas
from rocelab.tools.own import OwnProgram
from rocelab.virtual.congestion import Algorithm
from rocelab.virtual.flow_tables import FlowsTable
from rocelab.virtual.msccl.files import READS_FILE, ScheduleFile

NODES_MAX = 4096

Topology = Literal["back-to-back", "one-switch", "leaf-spine", "fat-tree", "dragonfly", "rails", "listed"]
Level = Literal["network", "mpi"]
Test = Literal[
    "latency",
    "bandwidth",
    "bidirectional-bandwidth",
    "bw",
    "bibw",
    "mesh",
    "incast",
    "permutation",
    "ring-all-reduce",
    "ring-all-gather",
    "halving-doubling-all-reduce",
    "double-tree-all-reduce",
    "all-to-all",
    "msccl",
]
#: Tests of each level. Those of MPI are named as its benchmarks are.
TESTS: Mapping[Level, tuple[Test, ...]] = {
    "network": (
        "latency",
        "bandwidth",
        "bidirectional-bandwidth",
        "mesh",
        "incast",
        "permutation",
        "ring-all-reduce",
        "ring-all-gather",
        "halving-doubling-all-reduce",
        "double-tree-all-reduce",
        "all-to-all",
        "msccl",
    ),
    "mpi": ("latency", "bw", "bibw", "mesh"),
}
#: Tests over a number of nodes.
MANY_NODES: tuple[Test, ...] = ("mesh", "incast", "permutation")
#: Collectives of training jobs, and what moves through each rank's port for each byte of its data,
#: of n ranks: the factor of the bus bandwidth of nccl-tests.
COLLECTIVES: Mapping[str, Callable[[int], float]] = {
    "ring-all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "ring-all-gather": lambda ranks: (ranks - 1) / ranks,
    "halving-doubling-all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "double-tree-all-reduce": lambda ranks: 2 * (ranks - 1) / ranks,
    "all-to-all": lambda ranks: (ranks - 1) / ranks,
}

#: The collective that a file of MSCCL says.
MSCCL: Final = "msccl"
#: The same factors, by what a file calls its collective; of others there is no bus bandwidth.
FILE_COLLECTIVES: Mapping[str, Callable[[int], float]] = {
    "allreduce": COLLECTIVES["ring-all-reduce"],
    "allgather": COLLECTIVES["ring-all-gather"],
    "reduce_scatter": COLLECTIVES["ring-all-gather"],
    "reducescatter": COLLECTIVES["ring-all-gather"],
    "alltoall": COLLECTIVES["all-to-all"],
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}


def is_collective(test: str) -> bool:
    """Whether a test of the network level is a collective of a training job."""
    return test in COLLECTIVES or test == MSCCL


#: Those that pass chunks on.
TREES: tuple[Test, ...] = ("double-tree-all-reduce",)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FabricTable(_Table):
    """`[fabric]`."""

    kind: Literal["virtual"]
    host: str
    """Profile of every host."""


Ends = Annotated[str, Field(pattern=r"^(host|switch) [0-9]+(-[0-9]+)?$")]
"""`host 3`, or `switch 0-3`: each of them."""
Place = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]
"""Host or switch, and its port, both numbered from 0."""


class Cable(_Table):
    """`link.cables`: cables between each of the first and each of the second."""

    ends: Annotated[list[Ends], Field(min_length=2, max_length=2)]
    gbps: Annotated[float, Field(gt=0, strict=False)] | None = None
    """The rate; that of the adapters, if it is not said."""


class Incident(_Table):
    """`link.incidents`: something that breaks, and may work again."""

    what: Literal["cable", "switch", "pause-storm"]
    host: Place | None = None
    switch: Place | Annotated[int, Field(ge=0)] | None = None
    """Of `cable` and `pause-storm` the switch and its port; of `switch` its number."""
    at_us: Annotated[int, Field(ge=0)]
    until_us: PositiveInt | None = None
    notice_us: Annotated[int, Field(ge=0)] = 0
    """How long routing takes to notice either."""


class LinkTable(_Table):
    """`[[link]]`: one way to join the hosts."""

    id: Name
    topology: Topology
    switches: list[str] = []
    """Profiles; the one whose kind fits the adapter is taken."""
    pfc: bool = True
    ecn: bool = False
    """Whether switches mark; adapters obey by DCQCN, if no other congestion control is named."""
    ecn_step_bytes_per_25g: PositiveInt | None = None
    """In place of the switch's marking: all packets that meet more, for each 25 Gbps of the port, and no others."""
    congestion_control: Algorithm | None = None
    congestion_parameters: Mapping[str, bool | int | float] = {}
    """Of the congestion control that is named: see docs/congestion-control.md."""
    hash: Literal["ports", "addresses", "packets"] = "ports"
    """What switches choose one of several ways by; with `packets`, all ways in turns."""
    path_mtu_bytes: Literal[256, 512, 1024, 2048, 4096] | None = None
    """Of RDMA, in place of the adapters'."""
    propagation_ns: Annotated[int, Field(ge=0)] = 25
    """A cable of five metres."""
    hosts_per_rack: PositiveInt | None = None
    racks: PositiveInt | None = None
    """In place of `hosts_per_rack`: so many racks, whatever the number of hosts."""
    leaves_per_rack: PositiveInt = 1
    spines: PositiveInt | None = None
    uplinks: PositiveInt = 1
    uplink_gbps: Annotated[float, Field(gt=0, strict=False)] | None = None
    radix: Annotated[int, Field(ge=2, le=128)] | None = None
    hosts_per_edge: PositiveInt | None = None
    """Of a fat tree: more than radix / 2 over-subscribe it."""
    hosts_per_switch: PositiveInt | None = None
    switches_per_group: PositiveInt | None = None
    global_cables: PositiveInt | None = None
    """Of each switch of a dragonfly, to other groups."""
    global_gbps: Annotated[float, Field(gt=0, strict=False)] | None = None
    rails: PositiveInt | None = None
    nodes_per_group: PositiveInt | None = None
    cables: list[Cable] = []
    incidents: list[Incident] = []

    def rack_of(self, nodes: int) -> int | None:
        """Hosts of a rack, where so many take part."""
        return self.hosts_per_rack if self.racks is None else -(-nodes // self.racks)

    def switch_for(self, adapter: profiles.Adapter) -> profiles.Switch:
        """The switch that an adapter fits."""
        fitting = (profiles.switch(name) for name in self.switches)
        return next(each for each in fitting if each.kind == adapter.port.kind)


class Tap(_Table):
    """`tap`: a port whose packets are recorded, for Wireshark."""

    host: Annotated[int, Field(ge=0)] | None = None
    switch: Annotated[int, Field(ge=0)] | None = None
    port: Annotated[int, Field(ge=0)] = 0
    packets: PositiveInt = 100_000


class TestTable(_Table):
    """`[[test]]`."""

    __test__ = False  # not a test of ours, whatever pytest makes of the name

    test: Test
    level: Level = "network"
    variants: Annotated[Mapping[str, list[str]], Field(min_length=1)]
    """By adapter: what is run."""
    stacks: Mapping[str, str] = {"rdma": "verbs"}
    """By service of the adapter: the software profile."""
    links: list[str] | None = None
    repetitions: Annotated[int, Field(ge=1, le=1000)] | None = None
    sizes_bytes: Sizes = [65536]
    nodes: list[Annotated[int, Field(ge=2, le=NODES_MAX)]] = [2]
    queue_pairs: PositiveInt = 1
    depth: PositiveInt = 128
    messages: PositiveInt | None = None
    """Of bandwidth tests, of each queue pair; of MPI's mesh, iterations."""
    iterations: PositiveInt = 10
    """Of latency tests."""
    warmup_us: Annotated[int, Field(ge=0)] = 1000
    measured_us: PositiveInt = 2000
    ranks: Annotated[int, Field(ge=2)] | None = None
    """Of a collective: ranks of a group; all hosts, if it is not said."""
    stride: PositiveInt = 1
    """Of a collective: hosts from one rank of a group to the next."""
    chunk_bytes: PositiveInt | None = None
    """Of a tree: what is passed on at a time; half of the data, if it is not said."""
    file: Annotated[ScheduleFile | None, READS_FILE] = None
    """Of `msccl`: the algorithm."""
    series_us: PositiveInt | None = None
    """How often to note queues and rates."""
    tap: Tap | None = None

    def ranks_of(self, nodes: int) -> int:
        """Of a collective: ranks of a group."""
        return (self.ranks or nodes) if self.file is None else self.file.schedule.ranks

    def bus_factor(self, nodes: int) -> float | None:
        """Of a collective: what moves through each rank's port for each byte, if that is said of it."""
        name = self.test if self.file is None else self.file.schedule.collective
        factor = (COLLECTIVES if self.file is None else FILE_COLLECTIVES).get(name)
        return None if factor is None else factor(self.ranks_of(nodes))

    def every_size_bytes(self) -> tuple[int, ...]:
        """The sizes, ascending."""
        return every_size_bytes_of(self.sizes_bytes)


class _SmpiTable(_Table):
    """What the tests have in common that SimGrid runs: programs of MPI."""

    mpi: str
    """Profile of the MPI library."""
    variants: Annotated[Mapping[str, list[Literal["smpi"]]], Field(min_length=1)]
    """By adapter."""
    stacks: Mapping[str, str] = {"rdma": "verbs"}
    """By service of the adapter: the software below MPI."""
    links: list[str] | None = None
    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)] = 2
    ranks_per_node: Annotated[int, Field(ge=1, le=RANKS_PER_NODE_MAX)] = 1
    iterations: PositiveInt | None = None

    @property
    def ranks(self) -> int:
        """How many processes take part."""
        return self.nodes * self.ranks_per_node


class SmpiTestTable(_SmpiTable):
    """`[[test]]` with `level = "mpi"` and an MPI library: a benchmark of rocelab-mpi."""

    level: Literal["mpi"]
    test: Annotated[str, Field(min_length=1)]
    sizes_bytes: Sizes

    def every_size_bytes(self) -> tuple[int, ...]:
        """The sizes, ascending."""
        return every_size_bytes_of(self.sizes_bytes)


class Calibration(_Table):
    """`[test.calibration]`: what the speed of the processors is set by."""

    adapter: str
    """On which the programs took so long: the only column of a table that is no prediction."""
    time_s: Annotated[Mapping[str, Annotated[float, Field(gt=0, strict=False)]], Field(min_length=1)]
    """By program and class, as `ft.C`."""


class SmpiNasTable(_SmpiTable):
    """`[[test]]` with `level = "nas"`: NAS Parallel Benchmarks."""

    level: Literal["nas"]
    programs: Annotated[list[nas.Program], Field(min_length=1)]
    classes: Annotated[list[nas.ProblemClass], Field(min_length=1)]
    model: bool = True
    """Whether the work of the processors is only simulated. Else it is also done, and the results are verified."""
    calibration: Calibration | None = None

    @property
    def pairs(self) -> tuple[tuple[nas.Program, nas.ProblemClass], ...]:
        """Every program with every class."""
        return tuple((program, each) for each in self.classes for program in self.programs)


class SmpiProgramTable(_SmpiTable):
    """Programs of one's own, made from a study for nodes; no file has it."""

    level: Literal["program"]
    own: tuple[OwnProgram, ...]


def _tag(value: Any) -> str | None:
    # A table of the file, or one of ours; or what a user took for a table.
    fields: dict[str, Any] = {name: getattr(value, name, None) for name in ("level", "mpi")}
    table: dict[str, Any] = value if isinstance(value, dict) else fields
    level = table.get("level", "network")
    if level == "flows":
        return FLOWS_TAG
    if level == "mpi" and table.get("mpi") is None:
        return LEVEL_TAGS["network"]
    return LEVEL_TAGS[level] if isinstance(level, str) and level in {"network", "mpi", "nas"} else None


AnyVirtualTest = Annotated[
    Annotated[TestTable, Tag(LEVEL_TAGS["network"])]
    | Annotated[SmpiTestTable, Tag(LEVEL_TAGS["mpi"])]
    | Annotated[SmpiNasTable, Tag(LEVEL_TAGS["nas"])]
    | Annotated[FlowsTable, Tag(FLOWS_TAG)]
    | Annotated[SmpiProgramTable, Tag(LEVEL_TAGS["program"])],
    Discriminator(
        _tag,
        custom_error_type="unknown_level",
        custom_error_message='there is no such level; allowed: "network", "flows", "mpi", "nas"',
    ),
]
SmpiTable = SmpiTestTable | SmpiNasTable | SmpiProgramTable


class VirtualStudy(_Table):
    """The whole file."""

    version: Literal[1] = Field(alias="schema")
    id: Name
    title: Annotated[str, Field(min_length=1)]
    description: str = ""
    claims: list[str] = []
    repetitions: Annotated[int, Field(ge=1, le=1000)] = 1
    seed: Annotated[int, Field(ge=0)] = 1
    fabric: FabricTable
    link: Annotated[list[LinkTable], Field(min_length=1)]
    test: Annotated[list[AnyVirtualTest], Field(min_length=1)]

    def links_of(self, test: AnyVirtualTest) -> tuple[LinkTable, ...]:
        """The links that a test runs on: those it names, or all."""
        return tuple(link for link in self.link if test.links is None or link.id in test.links)
