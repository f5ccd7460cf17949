"""Which comparisons of a run are not clear yet, and what to measure next about them.

Pure: from the plan and the samples so far to steps. A cell is one comparison: Soft RoCE and the
TCPs it is held against, with one metric at one size on one link. Looking at it after each
repetition and going on until it is clear would find differences that are none. So the bar is higher
while there is still time (Haybittle and Peto: 99.9 %), and what is left when the time is over is
judged as usual (95 %). Simulated with equal contestants, three repetitions first and 40 looks:
5.4 % of the cells are called different, instead of 5 %.

Sources: J. L. Haybittle, "Repeated assessment of results in clinical trials of cancer treatment", Brit. J. Radiology 44
(1971) 793-797; R. Peto et al., "Design and analysis of randomized clinical trials requiring prolonged observation of
each patient", Brit. J. Cancer 34 (1976) 585-612.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from rocelab.peers import SOFT_ROCE, SUBJECTS, TCP, WAITINGS, references
from rocelab.results import Sample
from rocelab.stats import NO_SIZE, Ratio, Series, SeriesKey, SeriesTable
from rocelab.stats import Side as RatioSide
from rocelab.study.budget import Budget, Pace, Revision, Round, Schedule
from rocelab.study.steps import Step

#: How often chance alone may show such a difference at one look before the last (Haybittle and
#: Peto).
INTERIM_P_VALUE: Final = 0.001
#: A ratio that is as near to 1 as this, with its whole interval, needs no more repetitions.
#: Programs on a link that is slower than they are have the same bandwidth, however often it is
#: measured.
SAME_WITHIN: Final = 0.05
#: So many looks at most: the rate of false differences above is for this number.
LOOKS_MAX: Final = 40

Better = Literal["lower", "higher"]
#: Units of which less is better; of all others more is.
_COSTS: Final = ("us", "us/MiB", "cores", "s")


class _Place(NamedTuple):
    """Where contestants meet."""

    link: str
    level: str
    test: str
    size_bytes: int | None
    nodes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class Cell:
    """One comparison: a variant of Soft RoCE and the variants of TCP it is held against."""

    place: _Place
    metric: str
    better: Better
    subject: str
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a cell stands."""

    is_open: bool
    contenders: tuple[str, ...]
    """The references that may still be the best of them."""


class Adaptive:
    """Plans rounds for what is not clear. Knows the plan; is given the samples."""

    def __init__(self, plan: Sequence[Step]) -> None:
        self._templates: dict[tuple[_Place, str, str], Step] = {}
        self._planned: dict[_Place, int] = {}
        for step in plan:
            if not step.compared:
                continue
            for place in _places(step):
                self._templates[place, step.interconnect, step.variant] = step
                self._planned[place] = max(self._planned.get(place, 0), step.repetition + 1)
        self._open = cells(plan)

    def another(self, samples: Sequence[Sample]) -> Round:
        """One more repetition of all contestants of what is open, those places first that have had the fewest.

        What was clear once is not looked at again.
        """
        table = SeriesTable(samples)
        made = _repetitions(samples)
        wanted: dict[tuple[object, ...], dict[tuple[str, str], Step]] = {}
        numbers: dict[tuple[object, ...], int] = {}
        still_open = []
        for cell in self._open:
            standing = stand(cell, table)
            number = made.get(cell.place, 0)
            if not standing.is_open or number >= self._planned[cell.place] + LOOKS_MAX:
                continue
            still_open.append(cell)
            contestants = [(SOFT_ROCE, cell.subject), *((TCP, reference) for reference in standing.contenders)]
            for contestant in contestants:
                step = self._templates[cell.place, *contestant]
                meeting = _meeting(step, cell.place)
                wanted.setdefault(meeting, {})[contestant] = step
                numbers[meeting] = max(numbers.get(meeting, 0), number)
        self._open = still_open
        turns = sorted(wanted, key=lambda meeting: numbers[meeting])
        return Round(
            tuple(step for turn in turns for step in _turn(wanted[turn], numbers[turn])), cells=len(still_open)
        )


class Course:
    """How a run with a budget goes on: its schedule, and rounds that are about what is open."""

    def __init__(self, plan: Sequence[Step], budget: Budget, pace: Pace) -> None:
        """`plan` is all of it, also what a resumed run has done already."""
        self.pace = pace
        self._schedule = Schedule(budget, pace)
        self._adaptive = Adaptive(plan)

    def revise(self, last: Step | None, rest: Sequence[Step], samples: Callable[[], Sequence[Sample]]) -> Revision:
        """See `Schedule.revise`; the samples so far are asked for only where they matter."""
        return self._schedule.revise(last, rest, lambda: self._adaptive.another(samples()))


def cells(plan: Iterable[Step]) -> list[Cell]:
    """The comparisons that a plan allows, in its order.

    For each way of waiting, Soft RoCE is held against the TCPs that wait as it does; and the first of its series,
    against all of them.
    """
    variants: dict[tuple[_Place, tuple[tuple[str, str], ...]], dict[str, list[str]]] = {}
    for step in plan:
        if not step.compared:
            continue
        for place in _places(step):
            taking_part = variants.setdefault((place, step.compared), {}).setdefault(step.interconnect, [])
            if step.variant not in taking_part:
                taking_part.append(step.variant)
    return [
        Cell(place, metric, "lower" if unit in _COSTS else "higher", subject, held_against)
        for (place, metrics), by_interconnect in variants.items()
        for subject, held_against in _pairings(place.level, by_interconnect)
        for metric, unit in metrics
    ]


def stand(cell: Cell, table: SeriesTable) -> Standing:
    """How a cell stands with the samples so far. Where one side has no value, more of them would not help."""
    subject = _series(cell, table, SOFT_ROCE, cell.subject)
    rivals = {each: series for each in cell.references if (series := _series(cell, table, TCP, each))}
    if subject is None or not rivals:
        return Standing(is_open=False, contenders=())
    names, size = list(rivals), _size(cell)
    found = subject.ratio_to_best(list(rivals.values()), size, better=cell.better)
    if found is None:
        return Standing(is_open=False, contenders=())
    best = rivals[names[found.best]]
    contenders = tuple(each for each, rival in rivals.items() if rival is best or not _differ(rival, best, size))
    differs = found.ratio.side is not RatioSide.UNCLEAR and _differ(subject, best, size)
    return Standing(not differs and not _is_same(found.ratio), contenders)


def _is_same(comparison: Ratio) -> bool:
    """Whether the whole interval is so near to 1 that a difference would not matter: equivalence, not a lack of data.

    D. J. Schuirmann, "A comparison of the two one-sided tests procedure and the power approach", J. Pharmacokinetics
    and Biopharmaceutics 15 (1987) 657-680.
    """
    low, high = comparison.low, comparison.high
    return low is not None and high is not None and low >= 1 / (1 + SAME_WITHIN) and high <= 1 + SAME_WITHIN


def _differ(one: Series, other: Series, size: int) -> bool:
    """Whether two differ by Welch's test and by the interval of the final verdict.

    That the p-value is below 0.001 says the same as that Welch's interval at 99.9 % is on one side of 1.
    """
    comparison = one.ratio_to(other, size)
    if comparison is None or comparison.p_value is None:
        return False
    return comparison.p_value < INTERIM_P_VALUE and comparison.side is not RatioSide.UNCLEAR


def _size(cell: Cell) -> int:
    return NO_SIZE if cell.place.size_bytes is None else cell.place.size_bytes


def _series(cell: Cell, table: SeriesTable, interconnect: str, variant: str) -> Series | None:
    """A series with values at the cell's size; no ratio is defined for zero."""
    place = cell.place
    key = SeriesKey(
        place.link, place.level, place.test, interconnect, variant, cell.metric, nodes=place.nodes, ranks=place.ranks
    )
    series = table.get(key)
    return None if series is None or min(series.values.get(_size(cell), ()), default=0.0) <= 0 else series


def _pairings(level: str, variants: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tuple[str, ...]]]:
    every = tuple(references(level, variants.get(TCP, ())))
    first = None
    for waiting in WAITINGS:
        wanted = SUBJECTS.get(level, {}).get(waiting, ())
        subject = next((each for each in wanted if each in variants.get(SOFT_ROCE, ())), None)
        if subject is None:
            continue
        # Soft RoCE at its best polls.
        first = subject
        alike = tuple(references(level, variants.get(TCP, ()), waiting))
        if alike and alike != every:
            yield subject, alike
    if first is not None and every:
        yield first, every


def _places(step: Step) -> Iterator[_Place]:
    return (_Place(key.link, key.level, key.test, key.size_bytes, key.nodes, key.ranks) for key in step.keys)


def _meeting(step: Step, place: _Place) -> tuple[object, ...]:
    """What one turn is about: a size, or all sizes of an MPI program, which one start measures."""
    return place if len(step.keys) == 1 else place._replace(size_bytes=None)


def _turn(contestants: Mapping[tuple[str, str], Step], number: int) -> list[Step]:
    """The contestants with a repetition number; which goes first changes with it."""
    steps = [dataclasses.replace(step, repetition=number) for step in contestants.values()]
    first = number % len(steps)
    return steps[first:] + steps[:first]


def _repetitions(samples: Iterable[Sample]) -> dict[_Place, int]:
    """How many repetitions of the contestants of each place have been begun."""
    made: dict[_Place, int] = {}
    for sample in samples:
        place = _Place(*sample.key[:1], *sample.key[2:4], sample.size_bytes, sample.nodes, sample.ranks)
        made[place] = max(made.get(place, 0), sample.repetition + 1)
    return made
