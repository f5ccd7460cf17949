"""What the tables of study files are made of: sizes, names, and what the tests of every level have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag
from typing_extensions import override

from rocelab.fabric.plan import NODES_MAX

STUDY_SCHEMA_VERSION = 1
SIZE_MAX_BYTES = 1 << 30
FILE_MAX_BYTES = 1 << 40
RANKS_PER_NODE_MAX = 64
REPETITIONS_MAX = 1000
BUDGET_MAX_MINUTES = 10_000

#: What can be measured of every pair of nodes.
PairsTest = Literal["latency", "bandwidth", "bidirectional-bandwidth"]

Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=40)]
#: As the kernel spells its congestion controls (TCP_CA_NAME_MAX, linux/tcp.h, is 16 with the end).
CongestionControl = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=15)]
SizeBytes = Annotated[int, Field(ge=1, le=SIZE_MAX_BYTES)]


class Table(BaseModel):
    """Nothing but what its keys are, and as its file has it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SizeRange(Table):
    """`{ from = 1, to = 1024 }`: 1, 2, 4, ... 1024; another factor than 2 may be given."""

    first_bytes: SizeBytes = Field(alias="from")
    last_bytes: SizeBytes = Field(alias="to")
    factor: Annotated[int, Field(ge=2, le=1024)] = 2

    def sizes_bytes(self) -> tuple[int, ...]:
        """Every size of the range, ascending."""
        sizes = []
        size_bytes = self.first_bytes
        while size_bytes <= self.last_bytes:
            sizes.append(size_bytes)
            size_bytes *= self.factor
        return tuple(sizes)


def _kind_of_sizes(value: Any) -> str:
    return "range" if isinstance(value, dict | SizeRange) else "list"


Sizes = Annotated[
    Annotated[SizeRange, Tag("range")] | Annotated[list[SizeBytes], Tag("list"), Field(min_length=1)],
    Discriminator(_kind_of_sizes),
]


#: Of files and of all records of a sort, which are larger than messages.
FileSizes = Annotated[
    Annotated[SizeRange, Tag("range")]
    | Annotated[list[Annotated[int, Field(ge=1, le=FILE_MAX_BYTES)]], Tag("list"), Field(min_length=1)],
    Discriminator(_kind_of_sizes),
]


class TestOnLinks(Table):
    """What the tests of every level have: which variants take part, where, and how often."""

    __test__ = False  # not a test of ours, whatever pytest makes of the name

    variants: Annotated[Mapping[str, Annotated[list[str], Field(min_length=1)]], Field(min_length=1)]
    links: list[str] | None = None
    repetitions: Annotated[int, Field(ge=1, le=REPETITIONS_MAX)] | None = None

    @property
    def has_sizes(self) -> bool:
        """Whether it is about messages, files or records of some sizes."""
        return True

    @property
    def points(self) -> tuple[int, ...]:
        """What of one scale is measured apart: its sizes, or (0,) for the only point."""
        return self.every_size_bytes() or (0,)

    @abstractmethod
    def every_size_bytes(self) -> tuple[int, ...]:
        """The sizes, ascending; none for a test without."""

    def nodes_used(self, _fabric_nodes: int) -> int:
        """On how many nodes it runs, at most: the first of the fabric."""
        return 2

    def scales(self, fabric_nodes: int) -> list[tuple[int, int]]:
        """On how many nodes it runs, and with how many processes."""
        nodes = self.nodes_used(fabric_nodes)
        return [(nodes, nodes)]


class SomeNodesTable(TestOnLinks):
    """What the tests have in common that run on the first so many nodes, or on all."""

    nodes: Annotated[int, Field(ge=1, le=NODES_MAX)] | None = None

    @override
    def nodes_used(self, fabric_nodes: int) -> int:
        return fabric_nodes if self.nodes is None else self.nodes


def every_size_bytes_of(sizes: SizeRange | list[int]) -> tuple[int, ...]:
    """Every size that a file has given in either way, ascending."""
    if isinstance(sizes, SizeRange):
        return sizes.sizes_bytes()
    return tuple(sorted(set(sizes)))
