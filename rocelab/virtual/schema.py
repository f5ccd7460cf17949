"""What a study file of the virtual fabric may say. docs/simulator.md explains every key; units are in the names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from rocelab.study.schema import Name, SizeRange, Sizes

NODES_MAX = 4096

Topology = Literal["back-to-back", "one-switch", "leaf-spine", "fat-tree"]
Level = Literal["network", "mpi"]
Test = Literal["latency", "bandwidth", "bidirectional-bandwidth", "bw", "bibw", "mesh", "incast", "permutation"]
#: Tests of each level. Those of MPI are named as its benchmarks are.
TESTS: Mapping[Level, tuple[Test, ...]] = {
    "network": ("latency", "bandwidth", "bidirectional-bandwidth", "mesh", "incast", "permutation"),
    "mpi": ("latency", "bw", "bibw", "mesh"),
}
#: Tests over a number of nodes.
MANY_NODES: tuple[Test, ...] = ("mesh", "incast", "permutation")


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class FabricTable(_Table):
    """`[fabric]`."""

    kind: Literal["virtual"]
    host: str
    """Profile of every host."""


class LinkTable(_Table):
    """`[[link]]`: one way to join the hosts."""

    id: Name
    topology: Topology
    switches: list[str] = []
    """Profiles; the one whose kind fits the adapter is taken."""
    pfc: bool = True
    ecn: bool = False
    """Whether switches mark, and adapters obey (DCQCN)."""
    hash: Literal["ports", "addresses"] = "ports"
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

    def rack_of(self, nodes: int) -> int | None:
        """Hosts of a rack, where so many take part."""
        return self.hosts_per_rack if self.racks is None else -(-nodes // self.racks)


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
    series_us: PositiveInt | None = None
    """How often to note queues and rates."""
    tap: Tap | None = None

    def every_size_bytes(self) -> tuple[int, ...]:
        """The sizes, ascending."""
        if isinstance(self.sizes_bytes, SizeRange):
            return self.sizes_bytes.sizes_bytes()
        return tuple(sorted(set(self.sizes_bytes)))


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
    test: Annotated[list[TestTable], Field(min_length=1)]

    def links_of(self, test: TestTable) -> tuple[LinkTable, ...]:
        """The links that a test runs on: those it names, or all."""
        return tuple(link for link in self.link if test.links is None or link.id in test.links)
