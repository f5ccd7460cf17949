"""Steps of flows that share a link: many pairs of programs at the same time, of several kinds."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from rocelab.results import SHARING_TEST
from rocelab.study.sharing_tables import NODES_BESIDE_SENDERS
from rocelab.study.together_steps import TogetherStep
from rocelab.tools.base import Executable
from rocelab.tools.mesh import MeshMethod
from rocelab.variants import Flows


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingStep(TogetherStep):
    """One start of a mix: each flow from a node of its own to the first node."""

    mix: tuple[Flows, ...]
    methods: tuple[MeshMethod, ...]
    """For each kind of the mix, its program."""

    @property
    def flows(self) -> tuple[tuple[str, MeshMethod], ...]:
        """Of each flow, what it is called and its program. Those of a kind are counted from 1."""
        return tuple(
            (f"{kind.interconnect} {number}", method)
            for kind, method in zip(self.mix, self.methods, strict=True)
            for number in range(1, kind.count + 1)
        )

    @property
    @override
    def scale(self) -> tuple[int, int]:
        # The receiver, the senders, and the one that asks for the queue.
        return len(self.flows) + NODES_BESIDE_SENDERS, len(self.flows)

    @property
    @override
    def starting_s(self) -> float:
        return sum(method.pair_s for _, method in self.flows)

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
    def series(self) -> tuple[str, ...]:
        return (self.link.id, SHARING_TEST, self.interconnect, self.variant)
