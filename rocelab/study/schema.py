"""What a study file may say. Every key is explained in docs/studies.md; units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveInt, Tag
from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkKind, LinkProfile
from rocelab.fabric.plan import LOSS_PERCENT_MAX, NODES_MAX
from rocelab.results import SHARING_TEST, SIDE_BY_SIDE_TEST
from rocelab.study.flows import FLOW_TESTS, FlowTest
from rocelab.study.own_tables import ProgramTable, VirtualTable
from rocelab.study.sharing_tables import SharingTable
from rocelab.study.side_by_side_tables import SideBySideTable
from rocelab.study.tables import (
    BUDGET_MAX_MINUTES,
    RANKS_PER_NODE_MAX,
    REPETITIONS_MAX,
    CongestionControl,
    FileSizes,
    Name,
    PairsTest,
    SizeBytes,
    Sizes,
    SomeNodesTable,
    Table,
    TestOnLinks,
    every_size_bytes_of,
)
from rocelab.tools import nas
from rocelab.tools.base import SuiteName, Test
from rocelab.tools.hbase import Workload
from rocelab.tools.hdfs import Runner


class FabricTable(Table):
    """`[fabric]`: where the study runs."""

    kind: Literal["emulated"] = "emulated"
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)] = 2


class LinkTable(Table):
    """`[[link]]`: one kind of link between the nodes."""

    id: Name
    kind: LinkKind
    mtu_bytes: Annotated[int, Field(ge=576, le=65535)] = 1500
    rate_mbps: Annotated[float, Field(gt=0, le=400_000, strict=False)] | None = None
    queue_bytes: PositiveInt | None = None
    switch_queue_bytes: PositiveInt | None = None
    nodes_per_switch: PositiveInt | None = None
    uplink_rate_mbps: Annotated[float, Field(gt=0, le=400_000, strict=False)] | None = None
    gso_max_bytes: PositiveInt | None = None
    loss_percent: Annotated[float, Field(ge=0, le=LOSS_PERCENT_MAX, strict=False)] | None = None
    ecn_percent: Annotated[float, Field(gt=0, le=100, strict=False)] | None = None

    def profile(self) -> LinkProfile:
        """The same for the fabric."""
        return LinkProfile(
            id=self.id,
            kind=self.kind,
            mtu_bytes=self.mtu_bytes,
            rate_mbps=self.rate_mbps,
            queue_bytes=self.queue_bytes,
            switch_queue_bytes=self.switch_queue_bytes,
            nodes_per_switch=self.nodes_per_switch,
            uplink_rate_mbps=self.uplink_rate_mbps,
            gso_max_bytes=self.gso_max_bytes,
            loss_percent=self.loss_percent,
            ecn_percent=self.ecn_percent,
        )


class TestTable(TestOnLinks):
    """`[[test]]` of the network level: two programs on the first two nodes, a size at a time."""

    level: Literal["network"] = "network"
    test: Test
    sizes_bytes: Sizes
    point_ms: Annotated[float, Field(gt=0, le=60_000, strict=False)] = 100.0

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return every_size_bytes_of(self.sizes_bytes)


class MeshTable(TestOnLinks):
    """`[[test]]` with `test = "mesh"`, "incast" or "bisection": many of the first so many nodes send at once."""

    level: Literal["network"] = "network"
    test: FlowTest
    nodes: Annotated[list[Annotated[int, Field(ge=2, le=NODES_MAX)]], Field(min_length=1)]
    size_bytes: SizeBytes = 65536
    parallel: Annotated[int, Field(ge=1, le=1000)] = 1
    depth: Annotated[int, Field(ge=1, le=16384)] = 128
    measured_s: Annotated[int, Field(ge=1, le=3600)] = 5
    margin_s: Annotated[int, Field(ge=1, le=600)] = 2
    traffic_class: Annotated[int, Field(ge=0, le=255)] = 0

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return (self.size_bytes,)

    @property
    @override
    def points(self) -> tuple[int, ...]:
        # A mesh of another size would be another point at the same number of nodes.
        return (0,)

    @override
    def nodes_used(self, _fabric_nodes: int) -> int:
        return max(self.nodes)

    @override
    def scales(self, _fabric_nodes: int) -> list[tuple[int, int]]:
        return [(nodes, nodes) for nodes in self.nodes]


class AllPairsTable(TestOnLinks):
    """`[[test]]` with `level = "pairs"`: every node with every other, as many pairs at a time as share no node."""

    level: Literal["pairs"]
    test: PairsTest
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)] | None = None
    size_bytes: SizeBytes | None = None
    """Left out: 8 for latency, and 65536 for all else."""
    pairs_at_once: PositiveInt | None = None
    """Left out: as many as share no node. Nodes of one machine share its cores: fewer disturb each other less."""
    pairs_per_switch: PositiveInt | None = None
    """How many pairs at a time may leave a switch, where it is known which nodes it has; left out: any number."""
    point_ms: Annotated[float, Field(gt=0, le=60_000, strict=False)] = 100.0

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        if self.size_bytes is not None:
            return (self.size_bytes,)
        return (8,) if self.test == "latency" else (65536,)

    @override
    def nodes_used(self, fabric_nodes: int) -> int:
        return fabric_nodes if self.nodes is None else self.nodes


class _MpiJob(SomeNodesTable):
    """What the tests have in common that are an MPI program."""

    suite_folder: str | None = None
    ranks_per_node: Annotated[int, Field(ge=1, le=RANKS_PER_NODE_MAX)] = 1
    mapping: Literal["slot", "node"] = "slot"

    @override
    def scales(self, fabric_nodes: int) -> list[tuple[int, int]]:
        nodes = self.nodes_used(fabric_nodes)
        return [(nodes, nodes * self.ranks_per_node)]


class MpiTestTable(_MpiJob):
    """`[[test]]` with `level = "mpi"`: an MPI program on some nodes, all of its sizes in one start."""

    level: Literal["mpi"]
    test: Annotated[str, Field(min_length=1)]
    sizes_bytes: Sizes | None = None
    """Not for tests that have none, such as barrier; needed for all others."""
    suite: SuiteName = "rocelab"
    iterations: PositiveInt | None = None
    warmup: Annotated[int, Field(ge=0)] | None = None
    options: list[str] = Field(default=[])

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @property
    @override
    def has_sizes(self) -> bool:
        return self.sizes_bytes is not None

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return () if self.sizes_bytes is None else every_size_bytes_of(self.sizes_bytes)


class NasTable(_MpiJob):
    """`[[test]]` with `level = "nas"`: NAS Parallel Benchmarks, each program and class in a start of its own."""

    level: Literal["nas"]
    programs: Annotated[list[nas.Program], Field(min_length=1)]
    classes: Annotated[list[nas.ProblemClass], Field(min_length=1)]
    suite: nas.SuiteName = "rocelab"

    @property
    def every_test(self) -> tuple[str, ...]:
        """The tests as samples state them: ``ft.A``."""
        return tuple(f"{program}.{each}" for program, each in self.pairs)

    @property
    def pairs(self) -> tuple[tuple[nas.Program, nas.ProblemClass], ...]:
        """Every program with every class, in the order in which they run."""
        return tuple((program, each) for each in self.classes for program in self.programs)

    @property
    @override
    def has_sizes(self) -> bool:
        return False

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return ()


class FullSizeTestTable(Table):
    """`full_size` of a test: what the source had, in place of the test's own keys."""

    sizes_bytes: FileSizes | None = None
    records: PositiveInt | None = None
    operations: PositiveInt | None = None
    warmup_operations: Annotated[int, Field(ge=0)] | None = None
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)] | None = None


class FullSizeTable(Table):
    """`[full_size]`: what the source had for all tests."""

    repetitions: Annotated[int, Field(ge=1, le=REPETITIONS_MAX)] | None = None
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)] | None = None


class _CloudTable(SomeNodesTable):
    """What the tests with `level = "cloud"` have in common: a system on the first nodes."""

    level: Literal["cloud"]
    nodes: Annotated[int, Field(ge=2, le=NODES_MAX)] | None = None
    full_size: FullSizeTestTable | None = None


class DfsioTable(_CloudTable):
    """`test = "testdfsio"`: each of two files has each of the sizes in turn."""

    test: Literal["testdfsio"]
    sizes_bytes: FileSizes
    runner: Runner = "local"

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return every_size_bytes_of(self.sizes_bytes)


class YcsbTable(_CloudTable):
    """`test = "ycsb"`: workloads on records in HBase."""

    test: Literal["ycsb"]
    workloads: Annotated[list[Workload], Field(min_length=1)]
    records: PositiveInt
    value_bytes: SizeBytes = 1000
    operations: PositiveInt
    warmup_operations: Annotated[int, Field(ge=0)] = 0
    threads: Annotated[int, Field(ge=1, le=1000)] = 8
    target_per_s: PositiveInt | None = None

    @property
    def every_test(self) -> tuple[str, ...]:
        """The workloads."""
        return tuple(self.workloads)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return (self.value_bytes,)


class SparkTable(_CloudTable):
    """`test = "terasort"` or `"shuffle"`: so many bytes in all."""

    test: Literal["terasort", "shuffle"]
    sizes_bytes: FileSizes

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return every_size_bytes_of(self.sizes_bytes)


#: The levels of tests, each with a table of its own. The tags are in the paths of pydantic's
#: errors.
LEVEL_TAGS: Mapping[str, str] = {
    "network": "level network",
    "mpi": "level mpi",
    "nas": "level nas",
    "cloud": "cloud testdfsio",
    "pairs": "level pairs",
    "program": "level program",
}
#: The mesh of the network level has a table of its own, too.
MESH_TAG = "network mesh"
#: And so have flows that share a link.
SHARING_TAG = "network sharing"
#: And so have programs side by side.
SIDE_BY_SIDE_TAG = "network side-by-side"
#: And so have the flows of the virtual fabric.
FLOWS_TAG = "level flows"
#: And so have the tests of the level cloud; one that is not known is taken for the first.
CLOUD_TAGS: Mapping[str, str] = {
    "testdfsio": "cloud testdfsio",
    "ycsb": "cloud ycsb",
    "terasort": "cloud spark",
    "shuffle": "cloud spark",
}


def _level_tag(value: Any) -> str | None:
    # A table of the file, or one of ours; or what a user took for a table.
    fields: dict[str, Any] = {name: getattr(value, name, None) for name in ("level", "test")}
    table: dict[str, Any] = value if isinstance(value, dict) else fields
    level = table.get("level", "network")
    if level == "network" and table.get("test") in FLOW_TESTS:
        return MESH_TAG
    if level == "network" and table.get("test") == SHARING_TEST:
        return SHARING_TAG
    if level == "network" and table.get("test") == SIDE_BY_SIDE_TEST:
        return SIDE_BY_SIDE_TAG
    if level == "cloud" and isinstance(table.get("test"), str):
        return CLOUD_TAGS.get(table["test"], LEVEL_TAGS["cloud"])
    return LEVEL_TAGS.get(level) if isinstance(level, str) else None


AnyTest = Annotated[
    Annotated[TestTable, Tag("level network")]
    | Annotated[MeshTable, Tag(MESH_TAG)]
    | Annotated[SharingTable, Tag(SHARING_TAG)]
    | Annotated[SideBySideTable, Tag(SIDE_BY_SIDE_TAG)]
    | Annotated[MpiTestTable, Tag("level mpi")]
    | Annotated[NasTable, Tag("level nas")]
    | Annotated[DfsioTable, Tag("cloud testdfsio")]
    | Annotated[YcsbTable, Tag("cloud ycsb")]
    | Annotated[SparkTable, Tag("cloud spark")]
    | Annotated[AllPairsTable, Tag("level pairs")]
    | Annotated[ProgramTable, Tag("level program")],
    Discriminator(
        _level_tag,
        custom_error_type="unknown_level",
        custom_error_message="there is no such level; allowed: " + ", ".join(f'"{level}"' for level in LEVEL_TAGS),
    ),
]


class TcpTable(Table):
    """`[tcp]`: the congestion controls that every TCP, and iWARP over it, is measured with, each as a variant."""

    congestion_control: list[CongestionControl] = Field(default=["cubic", peers.DEFAULT], min_length=1)


class MpiTable(Table):
    """`[mpi]`: folders of MPI implementations to take instead of those that rocelab brings."""

    openmpi: str | None = None
    mpich: str | None = None


class Study(Table):
    """The whole file."""

    version: Literal[1] = Field(alias="schema")
    id: Name
    title: Annotated[str, Field(min_length=1)]
    description: str = ""
    claims: list[str] = Field(default=[])
    repetitions: Annotated[int, Field(ge=1, le=REPETITIONS_MAX)] = 10
    seed: Annotated[int, Field(ge=0)] = 1
    time_limit_s: Annotated[float, Field(gt=0, le=86_400, strict=False)] = 30.0
    budget_minutes: Annotated[float, Field(gt=0, le=BUDGET_MAX_MINUTES, strict=False)] | None = None
    fabric: FabricTable = FabricTable()
    tcp: TcpTable = TcpTable()
    mpi: MpiTable = MpiTable()
    virtual: VirtualTable = VirtualTable()
    full_size: FullSizeTable | None = None
    at_full_size: bool = False
    """Whether it runs at the sizes of its source; `rocelab run --full-size` sets it."""
    folder: str = "."
    """Where paths of programs of one's own begin; left out: the folder of the file."""
    link: Annotated[list[LinkTable], Field(min_length=1)]
    test: Annotated[list[AnyTest], Field(min_length=1)]

    def links_of(self, test: AnyTest) -> tuple[LinkTable, ...]:
        """The links that a test runs on: those it names, or all."""
        return tuple(link for link in self.link if test.links is None or link.id in test.links)

    def repetitions_of(self, test: AnyTest) -> int:
        """How often a test is repeated."""
        return self.repetitions if test.repetitions is None else test.repetitions

    def variants_of(self, test: AnyTest) -> Mapping[str, tuple[str, ...]]:
        """The variants that take part in a test, by interconnect.

        TCP, and iWARP over it, takes part once for every congestion control, unless a variant names its own.
        """
        return {
            name: tuple(each for variant in chosen for each in self._controlled(name, variant))
            for name, chosen in test.variants.items()
        }

    def _controlled(self, interconnect: str, variant: str) -> tuple[str, ...]:
        if interconnect not in peers.OVER_TCP or peers.control_of(variant) is not None:
            return (variant,)
        return tuple(peers.with_control(variant, control) for control in self.tcp.congestion_control)

    def nodes_of(self, test: AnyTest) -> int:
        """On how many nodes a test runs, at most: the first of the fabric."""
        return test.nodes_used(self.fabric.nodes)


CloudTable = DfsioTable | YcsbTable | SparkTable
