"""How far a time budget goes: which of the steps that are left still fit, judged by how fast the run has been so far.

Pure: the clock is an argument. Steps are taken in turns: all contestants at one size, in one repetition, on one link. A
turn begins only if it fits, and is finished once it has begun, so that all that is compared is measured equally often.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from rocelab.study.steps import Step

#: The fewest repetitions of a first pass that is made shorter to fit a budget: one alone has no
#: spread.
REPETITIONS_MIN: Final = 2
#: How far beyond the budget a turn that has begun may go on before it is broken off.
OVERRUN_MAX_S: Final = 10.0
#: For so long the plan's own guess counts more than what was seen.
_LEARN_S: Final = 5.0

Clock = Callable[[], float]


class Budget:
    """Wall time that a run may take, from now on."""

    def __init__(self, limit_s: float, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._end_s = clock() + limit_s

    @property
    def left_s(self) -> float:
        """What is left; negative once it is used up."""
        return self._end_s - self._clock()


class Pace:
    """How many times as long as planned steps take, on average so far."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._started_s = clock()
        self._planned_s = 0.0

    def ended(self, step: Step) -> None:
        """A step is done."""
        self._planned_s += step.expected_s

    @property
    def factor(self) -> float:
        """The guess."""
        return (self._clock() - self._started_s + _LEARN_S) / (self._planned_s + _LEARN_S)

    def seconds(self, steps: Sequence[Step]) -> float:
        """How long these steps will take."""
        return self.factor * sum(step.expected_s for step in steps)


@dataclass(frozen=True, slots=True)
class Round:
    """One more repetition of what is not clear yet."""

    steps: tuple[Step, ...]
    cells: int
    """How many comparisons it is about."""


@dataclass(frozen=True, slots=True)
class Revision:
    """What is left to be done, and why that has changed."""

    steps: Sequence[Step]
    news: str | None
    """For a person; None if nothing has changed."""
    cut: int = 0
    """How many steps of the first pass are not done, because the budget is used up."""


class Schedule:
    """What a run with a budget does next: the plan as far as it fits, then rounds of what is not clear yet."""

    def __init__(self, budget: Budget, pace: Pace) -> None:
        self._budget = budget
        self._pace = pace
        self._first_pass = True

    def revise(self, last: Step | None, rest: Sequence[Step], another: Callable[[], Round]) -> Revision:
        """Asked before each step: `last` was the one before, `rest` is what was to be done until now."""
        left_s = self._budget.left_s
        if last is not None and rest and turn_of(last) == turn_of(rest[0]):
            return Revision(rest, None) if left_s > -OVERRUN_MAX_S else self._ended(rest)
        if rest and self._first_pass:
            return self._shortened(rest, left_s)
        if left_s <= 0:
            return self._ended(rest)
        self._first_pass = False
        kept = self._fitting(rest, left_s)
        if not kept:
            return self._another_round(rest, another(), left_s)
        return Revision(kept, None if len(kept) == len(rest) else "less time is left than was expected")

    def _ended(self, rest: Sequence[Step]) -> Revision:
        return Revision((), "the time budget is used up" if rest else None, len(rest) if self._first_pass else 0)

    def _shortened(self, rest: Sequence[Step], left_s: float) -> Revision:
        """The plan without its last repetitions, as far as it has to be; nothing if not even the next turn fits."""
        if self._pace.seconds(next(turns(rest))) > left_s:
            return self._ended(rest)
        kept = rest
        while self._pace.seconds(kept) > left_s:
            last = max(step.repetition for step in kept)
            if last < REPETITIONS_MIN:
                break
            kept = [step for step in kept if step.repetition < last]
        if len(kept) == len(rest):
            return Revision(rest, None)
        return Revision(kept, f"the machine is slower than planned: {len(rest) - len(kept)} measurements are left out")

    def _another_round(self, rest: Sequence[Step], found: Round, left_s: float) -> Revision:
        kept = self._fitting(found.steps, left_s)
        if not kept:
            return self._ended(rest)
        cells = f"{found.cells} cells that are" if found.cells != 1 else "1 cell that is"
        return Revision(kept, f"spending up to {span(left_s)} more on {cells} not clear yet")

    def _fitting(self, rest: Sequence[Step], left_s: float) -> list[Step]:
        """The turns that fit one after the other; a long one that does not fit makes room for those behind it."""
        kept: list[Step] = []
        for turn in turns(rest):
            if self._pace.seconds([*kept, *turn]) <= left_s:
                kept += turn
        return kept


def turn_of(step: Step) -> tuple[object, ...]:
    """The same for steps that follow each other and are compared with each other."""
    return (step.link.id, step.repetition, type(step), *step.place)


def turns(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps, a turn at a time."""
    return (list(members) for _, members in groupby(steps, key=turn_of))


def span(time_s: float) -> str:
    """``40 s``, ``1 min 40 s``."""
    minutes, seconds = divmod(max(1, round(time_s)), 60)
    parts = [f"{minutes} min"] if minutes else []
    return " ".join([*parts, f"{seconds} s"] if seconds else parts)
