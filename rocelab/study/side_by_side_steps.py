"""Steps of pairs of programs side by side between two nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from typing_extensions import override

from rocelab.results import SIDE_BY_SIDE_TEST, ParamValue
from rocelab.study.side_by_side_tables import Processors
from rocelab.study.together_steps import OneMethodStep


@dataclass(frozen=True, slots=True, kw_only=True)
class SideBySideStep(OneMethodStep):
    """One start of so many pairs of programs, or of one pair with so many queue pairs."""

    pairs: int
    queue_pairs: int
    """Of each pair of programs."""
    processors: Processors

    @property
    @override
    def scale(self) -> tuple[int, int]:
        return 2, self.pairs

    @property
    @override
    def starting_s(self) -> float:
        # One after the other, as each would else start against the load of the others.
        return self.pairs * self.method.pair_s

    @property
    @override
    def more_params(self) -> Mapping[str, ParamValue]:
        return {"processors": self.processors, "queue_pairs": self.queue_pairs}

    @property
    @override
    def test_name(self) -> str:
        return SIDE_BY_SIDE_TEST

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.pairs, self.size_bytes)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        return (self.link.id, SIDE_BY_SIDE_TEST, self.interconnect, self.variant, f"{self.pairs}-pairs")
