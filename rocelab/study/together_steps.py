"""Steps that are many pairs of programs which send at the same time, and what all of them have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from rocelab.results import ParamValue, StepKey
from rocelab.study.flows import FlowTest, flows
from rocelab.study.steps import SingleStep
from rocelab.tools.base import Executable
from rocelab.tools.mesh import MeshMethod

#: How many pairs of a mesh start and end at the same time, for planning only.
_CORES_ASSUMED = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class TogetherStep(SingleStep):
    """One start of pairs of programs, which are measured while all of them send."""

    size_bytes: int
    depth: int
    measured_s: int
    margin_s: int

    @property
    @abstractmethod
    def scale(self) -> tuple[int, int]:
        """On how many nodes, and how many pairs of programs."""

    @property
    @abstractmethod
    def starting_s(self) -> float:
        """About how long it takes to start and end all of them."""

    @property
    def more_params(self) -> Mapping[str, ParamValue]:
        """What was chosen beyond what all of these steps have."""
        return {}

    @property
    def params(self) -> Mapping[str, ParamValue]:
        """What was chosen, as samples state it."""
        return {**self.more_params, "depth": self.depth, "measured_s": self.measured_s, "margin_s": self.margin_s}

    @property
    @override
    def key(self) -> StepKey:
        nodes, pairs = self.scale
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level="network",
            test=self.test_name,
            variant=self.variant,
            size_bytes=self.size_bytes,
            repetition=self.repetition,
            nodes=nodes,
            ranks=2 * pairs,
        )

    @property
    @override
    def expected_s(self) -> float:
        return self.measured_s + 2 * self.margin_s + 1 + self.starting_s

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.scale[0],)


@dataclass(frozen=True, slots=True, kw_only=True)
class OneMethodStep(TogetherStep):
    """One start of pairs that all are of the same programs."""

    method: MeshMethod

    @property
    @override
    def tool(self) -> str:
        return self.method.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return self.method.executables


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshStep(OneMethodStep):
    """One start of many pairs of programs, which send at the same time, on so many nodes."""

    test: FlowTest
    nodes: int
    parallel: int
    traffic_class: int

    @property
    def connections(self) -> int:
        """How many pairs of programs there are."""
        return sum(map(len, flows(self.test, self.nodes)))

    @property
    @override
    def scale(self) -> tuple[int, int]:
        return self.nodes, self.connections

    @property
    @override
    def starting_s(self) -> float:
        return self.connections * self.method.pair_s / _CORES_ASSUMED

    @property
    @override
    def more_params(self) -> Mapping[str, ParamValue]:
        return {"connections": self.connections, "parallel": self.parallel}

    @property
    @override
    def test_name(self) -> str:
        return self.test

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, self.test, self.interconnect, self.variant, f"{self.nodes}-nodes")
