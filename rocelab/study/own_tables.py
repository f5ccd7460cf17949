"""The tables of programs of one's own; docs/programs-of-your-own.md explains their keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from rocelab.study.tables import RANKS_PER_NODE_MAX, Name, SomeNodesTable, Table
from rocelab.tools.own import Clock


class MetricTable(Table):
    """`[test.metric]`: where the result of a program of one's own is."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=40)] = "time_s"
    unit: Annotated[str, Field(min_length=1)] = "s"
    regex: str | None = None
    json_path: Annotated[str | None, Field(alias="json")] = None
    clock: Clock | None = None


class ProgramTable(SomeNodesTable):
    """`[[test]]` with `level = "program"`: a program of one's own, as it is."""

    level: Literal["program"]
    test: Name
    run: Literal["mpi", "pair", "nodes"]
    command: Annotated[list[str], Field(min_length=1)]
    server: list[str] = Field(default=[])
    values: list[str | int] = Field(default=[])
    build: list[str] = Field(default=[])
    files: list[str] = Field(default=[])
    env: Mapping[str, str] = Field(default={})
    words: Mapping[str, Mapping[str, str]] = Field(default={})
    """By interconnect: words for its command lines."""
    proves: str | None = None
    metric: MetricTable = MetricTable(clock="wall")
    ready: Literal["listens", "prints"] = "listens"
    ready_text: str | None = None
    ranks_per_node: Annotated[int, Field(ge=1, le=RANKS_PER_NODE_MAX)] = 1
    mapping: Literal["slot", "node"] = "slot"

    @property
    def every_test(self) -> tuple[str, ...]:
        """One for each value."""
        return tuple(f"{self.test}.{value}" for value in self.values) or (self.test,)

    @property
    @override
    def has_sizes(self) -> bool:
        return False

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return ()

    @override
    def nodes_used(self, fabric_nodes: int) -> int:
        return 2 if self.run == "pair" else super().nodes_used(fabric_nodes)

    @override
    def scales(self, fabric_nodes: int) -> list[tuple[int, int]]:
        nodes = self.nodes_used(fabric_nodes)
        return [(nodes, nodes * self.ranks_per_node)]


class VirtualTable(Table):
    """`[virtual]`: what programs of one's own are simulated on; docs/programs-of-your-own.md has the defaults."""

    host: str = "sandy-bridge-ep"
    mpi: str = "mvapich2-1.8"
    adapters: list[str] = Field(
        default=[
            "infiniband-qdr",
            "infiniband-fdr",
            "roce-10g",
            "roce-40g",
            "roce-100g",
        ],
        min_length=1,
    )
    switches: list[str] = Field(default=["sx6036-infiniband", "sx6036-ethernet"])
