"""Steps of flows that share a link: many pairs of programs at the same time, of several kinds."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from rocelab.results import SHARING_TEST, StepKey
from rocelab.study.sharing_tables import NODES_BESIDE_SENDERS
from rocelab.study.steps import SingleStep
from rocelab.tools.base import Executable
from rocelab.tools.mesh import MeshMethod
from rocelab.variants import Flows


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingStep(SingleStep):
    """One start of a mix: each flow from a node of its own to the first node."""

    mix: tuple[Flows, ...]
    methods: tuple[MeshMethod, ...]
    """For each kind of the mix, its program."""
    size_bytes: int
    depth: int
    measured_s: int
    margin_s: int

    @property
    def flows(self) -> tuple[tuple[str, MeshMethod], ...]:
        """Of each flow, what it is called and its program. Those of a kind are counted from 1."""
        return tuple(
            (f"{kind.interconnect} {number}", method)
            for kind, method in zip(self.mix, self.methods, strict=True)
            for number in range(1, kind.count + 1)
        )

    @property
    def nodes(self) -> int:
        """The receiver, the senders, and the one that asks for the queue."""
        return len(self.flows) + NODES_BESIDE_SENDERS

    @property
    @override
    def key(self) -> StepKey:
        return StepKey(
            link=self.link.id,
            interconnect=self.interconnect,
            level="network",
            test=SHARING_TEST,
            variant=self.variant,
            size_bytes=self.size_bytes,
            repetition=self.repetition,
            nodes=self.nodes,
            ranks=2 * len(self.flows),
        )

    @property
    @override
    def test_name(self) -> str:
        return SHARING_TEST

    @property
    @override
    def tool(self) -> str:
        return self.methods[0].tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        return tuple(dict.fromkeys(each for method in self.methods for each in method.executables))

    @property
    @override
    def expected_s(self) -> float:
        return self.measured_s + 2 * self.margin_s + 1 + sum(method.pair_s for _, method in self.flows)

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.nodes,)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, SHARING_TEST, self.interconnect, self.variant)
