"""What a level is to the plan and to the checks of study files, and what all levels need."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import ClassVar, Generic, TypeVar

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.problems import Wrong, unknown
from rocelab.study.schema import AnyTest, Study
from rocelab.study.steps import Step

TableT = TypeVar("TableT")

#: A step may take this many times what was planned for it, on top of the study's time limit.
_PATIENCE = 10


class Level(ABC, Generic[TableT]):
    """What one kind of `[[test]]` table means."""

    turn: ClassVar[int]
    """Within a repetition on a link, kinds of steps follow each other in this order."""
    is_by_system: ClassVar[bool] = False
    """Steps want daemons, which are on one link at a time: links take turns in each repetition, after all else."""

    def wrong(self, study: Study, at: int, test: TableT) -> Iterator[Wrong]:  # noqa: ARG002, most have nothing to add
        """What the test, which is the one at this index, asks for that cannot be, beyond what a single key shows."""
        yield from ()

    @abstractmethod
    def variants(self, test: TableT, interconnect: str) -> tuple[str, Sequence[str]]:
        """The variants of an interconnect that there are, and what to say of another: after "unknown variant of X"."""

    def wrong_variant(self, test: TableT, interconnect: str, variant: str) -> str | None:  # noqa: ARG002, as above
        """What a variant that there is cannot do of what the test asks."""
        return None

    @abstractmethod
    def steps(self, study: Study, test: TableT, link: LinkProfile, repetition: int) -> Iterator[Step]:
        """The steps of one repetition of a test on a link."""

    @abstractmethod
    def round_of(self, at: int, step: Step) -> int:
        """Steps of the same round take turns; rounds follow each other by this. `at` is the index of the test."""


def limit_s(study: Study, expected_s: float) -> float:
    """How long a step may take."""
    return round(study.time_limit_s + _PATIENCE * expected_s, 1)


def contestants(study: Study, test: AnyTest) -> list[tuple[str, str]]:
    """Interconnect and variant of all that take part, those of each interconnect in turn."""
    groups = [[(name, variant) for variant in chosen] for name, chosen in study.variants_of(test).items()]
    return [one for turn in zip_longest(*groups) for one in turn if one is not None]


def wrong_variants(level: Level[TableT], test: TableT, name: str, chosen: Sequence[str]) -> Iterator[str]:
    """What is wrong with the variants of an interconnect that a test names."""
    where, known = level.variants(test, name)
    for variant in map(peers.name_of, chosen):
        if variant not in known:
            yield unknown(f"variant of {name} {where}", variant, known)
        elif (problem := level.wrong_variant(test, name, variant)) is not None:
            yield problem
