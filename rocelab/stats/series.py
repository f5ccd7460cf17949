"""Samples sorted into series: the repetitions of one metric of one program, by message size or number of nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rocelab.results import MESH_TEST, Sample
from rocelab.stats.comparison import Ratio, Spread, ratio, spread

_TYPICAL = ("median", "mean", "average", "total")
"""What stands for a whole run of a tool, best first. Extremes and percentiles never do."""
_EXTREMES = ("min", "max", "stdev")
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

    @property
    def is_sizeless(self) -> bool:
        """Whether it is of a test without sizes."""
        return NO_SIZE in self.values

    @property
    def sizes(self) -> list[int]:
        """The sizes that have values, ascending."""
        return list(self.values)

    def spread(self, size_bytes: int) -> Spread:
        """Median and range at a size."""
        return spread(self.values[size_bytes])

    def spreads(self) -> Iterator[tuple[int, Spread]]:
        """Median and range at every size."""
        return ((size, spread(values)) for size, values in self.values.items())

    def ratio_to(self, other: Series, size_bytes: int) -> Ratio | None:
        """Divides this by the other at a size; None where either has no positive value there."""
        mine, theirs = self.values.get(size_bytes, ()), other.values.get(size_bytes, ())
        if not mine or not theirs or min(*mine, *theirs) <= 0:
            return None
        return ratio(mine, theirs, seed=size_bytes)


class SeriesTable:
    """All series of a run. Failed samples are left out: a metric counts only if its run was correct."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        """Takes the samples as :meth:`rocelab.results.RunStore.current_samples` gives them."""
        cells: dict[SeriesKey, dict[str, dict[int, dict[int, float]]]] = defaultdict(
            lambda: defaultdict(lambda: defaultdict(dict))
        )
        self._units: dict[SeriesKey, str] = {}
        for sample in samples:
            at = sample.nodes if sample.test == MESH_TEST else sample.size_bytes
            # What a statistic has behind an @ is a moment of the run: that is a point of a curve, and no result.
            if sample.value is None or "@" in sample.statistic:
                continue
            # A mesh runs over the number of nodes, so that is not what tells one of its series from another.
            scale = () if sample.test == MESH_TEST else (sample.nodes, sample.ranks)
            place = (sample.link, sample.level, sample.test, sample.interconnect, sample.variant, sample.metric)
            key = SeriesKey(*place, *scale)
            cells[key][sample.statistic][NO_SIZE if at is None else at][sample.repetition] = sample.value
            self._units[key] = sample.unit
        self._cells = cells

    def __iter__(self) -> Iterator[SeriesKey]:
        """Every series, in the order in which they first appear in the run."""
        return iter(self._cells)

    def get(self, key: SeriesKey) -> Series | None:
        """The typical value of a metric; None if the run has no such series."""
        by_statistic = self._cells.get(key)
        if by_statistic is None:
            return None
        return self._series(key, min(by_statistic, key=_typicality))

    def statistic(self, key: SeriesKey, statistic: str) -> Series | None:
        """Another statistic of the same metric, such as ``p99``."""
        return self._series(key, statistic) if statistic in self._cells.get(key, {}) else None

    def _series(self, key: SeriesKey, statistic: str) -> Series:
        by_size = self._cells[key][statistic]
        values = {
            size: tuple(by_size[size][repetition] for repetition in sorted(by_size[size])) for size in sorted(by_size)
        }
        return Series(key, self._units[key], statistic, values)


def _typicality(statistic: str) -> int:
    if statistic in _TYPICAL:
        return _TYPICAL.index(statistic)
    extreme = statistic in _EXTREMES or (statistic.startswith("p") and statistic[1:].replace(".", "").isdigit())
    return len(_TYPICAL) + extreme
