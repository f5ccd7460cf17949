"""Samples sorted into series: the repetitions of one metric of one program, by message size or number of nodes."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocelab.results import PAIRS_LEVEL, Sample, runs_over_nodes
from rocelab.stats.centre import Centre, Spread, spread
from rocelab.stats.comparison import BestRatio, Better, Ratio, ratio_to_best

_TYPICAL: Final = ("mean", "average", "total", "median")
"""What stands for a whole start of a tool, best first. Extremes and percentiles never do. A mean has the stalls in it
that a median of iterations, or of windows of messages, hides."""
_TYPICAL_OF: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("network", "latency_us"): ("median", "mean", "average", "total"),
}
"""The same of a level and a metric that have an order of their own: perftest calls the median the typical latency."""
_EXTREMES = ("min", "max", "stdev")
SIMULATED: Final = "virtual"
"""The fabric whose values are exact: another repetition would give the same."""
NO_SIZE = 0
"""Where a series has the values of a test without sizes, such as a barrier."""


class SeriesKey(NamedTuple):
    """What a series is of."""

    link: str
    level: str
    test: str
    interconnect: str
    variant: str
    metric: str
    nodes: int = 2
    ranks: int = 2


@dataclass(frozen=True)
class Series:
    """The values of one metric by size, each with its repetitions in the order of the repetition number.

    Of a mesh, by the number of nodes: what is called a size here is then that number. Of a test without sizes, all
    values are at `NO_SIZE`.
    """

    key: SeriesKey
    unit: str
    statistic: str
    values: Mapping[int, tuple[float, ...]]
    """Message size in bytes (or number of nodes), ascending, to the value of each repetition that succeeded."""
    is_exact: bool = False
    """Whether it was simulated: its values have no spread, so one is as good as many."""

    @property
    def centre(self) -> Centre:
        """What stands for its repetitions: the median of medians and of other percentiles, and the mean of all else."""
        return "median" if self.statistic == "median" or _is_percentile(self.statistic) else "mean"

    @property
    def is_sizeless(self) -> bool:
        """Whether it is of a test without sizes."""
        return NO_SIZE in self.values

    @property
    def sizes(self) -> list[int]:
        """The sizes that have values, ascending."""
        return list(self.values)

    def spread(self, size_bytes: int) -> Spread:
        """Centre and range at a size."""
        return spread(self.values[size_bytes], self.centre)

    def spreads(self) -> Iterator[tuple[int, Spread]]:
        """Centre and range at every size."""
        return ((size, self.spread(size)) for size in self.values)

    def plus(self, other: Series, metric: str) -> Series:
        """The sum of both, repetition by repetition, at the sizes at which both have the same number of them."""
        values = {
            size: tuple(a + b for a, b in zip(mine, other.values[size], strict=True))
            for size, mine in self.values.items()
            if len(mine) == len(other.values.get(size, ()))
        }
        return Series(self.key._replace(metric=metric), self.unit, self.statistic, values)

    def ratio_to(self, other: Series, size_bytes: int) -> Ratio | None:
        """Divides this by the other at a size; None where either has no positive value there."""
        found = self.ratio_to_best([other], size_bytes, better="higher")
        return None if found is None else found.ratio

    def ratio_to_best(
        self,
        others: Sequence[Series],
        size_bytes: int,
        *,
        better: Better,
        centre: Centre | None = None,
        subjects: int = 1,
    ) -> BestRatio[int] | None:
        """Divides this by the best of the others at a size, which is chosen among those that were measured there.

        The best is told by its position among the others. ``centre`` is that of this series if it is not given. None
        where this or all others have no positive value. ``subjects``: this is the best of so many, as
        :func:`best_to_best` chooses it.
        """
        there = {at: other for at, other in enumerate(others) if min(other.values.get(size_bytes, ()), default=0.0) > 0}
        if not there or min(self.values.get(size_bytes, ()), default=0.0) <= 0:
            return None
        every = [self, *there.values()]
        measured = [len(each.values[size_bytes]) for each in every if not each.is_exact_at(size_bytes)]
        # An exact value is what any number of repetitions would have given.
        mine, *theirs = (
            each.values[size_bytes] * (max(measured, default=1) if each.is_exact_at(size_bytes) else 1)
            for each in every
        )
        found = ratio_to_best(
            mine,
            dict(zip(there, theirs, strict=True)),
            better=better,
            centre=centre or self.centre,
            seed=size_bytes,
            subjects=subjects,
        )
        if measured:
            return found
        estimate = found.ratio.estimate
        return dataclasses.replace(found, ratio=Ratio(estimate, estimate, estimate, None, "exact"))

    def only(self, size_bytes: int) -> Series:
        """The values of one size alone, at `NO_SIZE`, to be held against those of another."""
        return dataclasses.replace(self, values={NO_SIZE: self.values[size_bytes]})

    def is_exact_at(self, size_bytes: int) -> bool:
        """Whether it has no spread at a size because it was simulated, once."""
        return self.is_exact and len(self.values[size_bytes]) == 1


def best_to_best(
    subjects: Sequence[Series], others: Sequence[Series], size_bytes: int, *, better: Better
) -> tuple[int, BestRatio[int]] | None:
    """Divides the best of several series by the best of others at a size; and which of the first it is.

    That either was chosen is part of the interval. None where no subject or none of the others has positive values.
    """
    there = {at: each for at, each in enumerate(subjects) if min(each.values.get(size_bytes, ()), default=0.0) > 0}
    found = {
        at: ratio
        for at, each in there.items()
        if (ratio := each.ratio_to_best(others, size_bytes, better=better, subjects=len(there))) is not None
    }
    if not found:
        return None
    choose = max if better == "higher" else min
    # All are divided by the same one.
    best = choose(found, key=lambda at: found[at].ratio.estimate)
    ratios = [each.ratio for each in found.values()]
    lows = [each.low for each in ratios if each.low is not None]
    highs = [each.high for each in ratios if each.high is not None]
    if len(ratios) == 1 or len(lows) < len(ratios) or len(highs) < len(ratios):
        return best, found[best]
    whole = dataclasses.replace(found[best].ratio, low=choose(lows), high=choose(highs), p_value=None)
    return best, dataclasses.replace(found[best], ratio=whole)


class SeriesTable:
    """All series of a run. Failed samples are left out: a metric counts only if its run was correct."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        """Takes the samples as :meth:`rocelab.results.RunStore.current_samples` gives them."""
        cells: dict[SeriesKey, dict[str, dict[int, dict[int, float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(dict))
        )
        self._units: dict[SeriesKey, str] = {}
        self._measured: set[SeriesKey] = set()
        for sample in samples:
            over_nodes = runs_over_nodes(sample.level, sample.test)
            at = sample.nodes if over_nodes else sample.size_bytes
            # What a statistic has behind an @ is a moment of the run: that is a point of a curve,
            # and no result. A pair of nodes is one among many, and no result of the run either.
            if sample.value is None or "@" in sample.statistic or sample.level == PAIRS_LEVEL:
                continue
            # What runs over the number of nodes is not told apart by it.
            scale = () if over_nodes else (sample.nodes, sample.ranks)
            place = (sample.link, sample.level, sample.test, sample.interconnect, sample.variant, sample.metric)
            key = SeriesKey(*place, *scale)
            cells[key][sample.statistic][NO_SIZE if at is None else at][sample.repetition] = sample.value
            self._units[key] = sample.unit
            if sample.fabric != SIMULATED:
                self._measured.add(key)
        self._cells = cells

    def __iter__(self) -> Iterator[SeriesKey]:
        """Every series, in the order in which they first appear in the run."""
        return iter(self._cells)

    def get(self, key: SeriesKey) -> Series | None:
        """The typical value of a metric, by the rule for its level; None if the run has no such series."""
        by_statistic = self._cells.get(key)
        if by_statistic is None:
            return None
        return self._series(key, min(by_statistic, key=lambda each: _typicality(each, key)))

    def statistic(self, key: SeriesKey, statistic: str) -> Series | None:
        """Another statistic of the same metric, such as ``p99``."""
        return self._series(key, statistic) if statistic in self._cells.get(key, {}) else None

    def _series(self, key: SeriesKey, statistic: str) -> Series:
        by_size = self._cells[key][statistic]
        values = {
            size: tuple(by_size[size][repetition] for repetition in sorted(by_size[size])) for size in sorted(by_size)
        }
        return Series(key, self._units[key], statistic, values, key not in self._measured)


def _typicality(statistic: str, key: SeriesKey) -> int:
    typical = _TYPICAL_OF.get((key.level, key.metric), _TYPICAL)
    if statistic in typical:
        return typical.index(statistic)
    return len(typical) + (statistic in _EXTREMES or _is_percentile(statistic))


def _is_percentile(statistic: str) -> bool:
    return statistic.startswith("p") and statistic[1:].replace(".", "").replace("_", "").isdigit()
