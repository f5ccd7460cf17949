"""`[[test]]` with `test = "side-by-side"`: more and more pairs of programs at the same time between two nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import override

from rocelab import peers
from rocelab.study.tables import Sizes, TestOnLinks, every_size_bytes_of

#: At once.
PAIRS_MAX = 512

#: Whether each program has a processor of its own, or all of a node share one.
Processors = Literal["own", "shared"]


class SideBySideTable(TestOnLinks):
    """Pairs of programs from the first node to the second."""

    level: Literal["network"] = "network"
    test: Literal["side-by-side"]
    pairs: Annotated[list[Annotated[int, Field(ge=1, le=PAIRS_MAX)]], Field(min_length=1)]
    sizes_bytes: Sizes
    depth: Annotated[int, Field(ge=1, le=16384)] = 128
    measured_s: Annotated[int, Field(ge=1, le=3600)] = 3
    margin_s: Annotated[int, Field(ge=1, le=600)] = 2
    processors: Processors = "own"

    @property
    def every_test(self) -> tuple[str, ...]:
        """The only test."""
        return (self.test,)

    @override
    def every_size_bytes(self) -> tuple[int, ...]:
        return every_size_bytes_of(self.sizes_bytes)

    @override
    def scales(self, _fabric_nodes: int) -> list[tuple[int, int]]:
        return [(2, 2 * pairs) for pairs in self.pairs]


def is_one_program(variant: str) -> bool:
    """Whether it is one pair of programs with as many queue pairs as others have programs."""
    return peers.name_of(variant).endswith(peers.ONE_PROGRAM)


def processors_needed(variant: str, pairs: int) -> int:
    """How many processors so many pairs take if each program has its own."""
    return 2 if is_one_program(variant) else 2 * pairs
