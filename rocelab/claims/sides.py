"""Finds the series of a side of a rule in a run, whose variants may name congestion controls where rules do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from rocelab import peers
from rocelab.claims.rules import LinkSide, Side
from rocelab.results import Sample
from rocelab.stats import Series, SeriesKey, SeriesTable, text


class Place(NamedTuple):
    """What a side is a series of."""

    link: str
    level: str
    test: str
    metric: str
    scale: tuple[int, int] | None = None
    """On how many nodes, and with how many processes. None: as many as were measured first."""


#: Metrics that are the sum of those of the two ends, client and server.
_OF_BOTH_ENDS: Final = {"cpu_us_per_mib": ("cpu_client_us_per_mib", "cpu_server_us_per_mib")}


class Sides:
    """The series of a run by the sides of rules, with notes on those that were chosen among several."""

    def __init__(self, table: SeriesTable) -> None:
        """Takes all series of the run."""
        self._table = table
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Where a rule about one series found several, and which it took."""
        return tuple(self._notes)

    def every(self, side: Side, place: Place) -> list[Series]:
        """All series of a side, in the order in which they were measured, and on one scale."""
        if place.metric in _OF_BOTH_ENDS:
            ends = (self.every(side, place._replace(metric=metric)) for metric in _OF_BOTH_ENDS[place.metric])
            return [client.plus(server, place.metric) for client, server in zip(*ends, strict=True)]
        keys = [key for key in self._table if _is_of(key, side, place)]
        scale = place.scale or (keys[0].nodes, keys[0].ranks) if keys else None
        found = (self._table.get(key) for key in keys if (key.nodes, key.ranks) == scale)
        return [series for series in found if series is not None]

    def scales(self, level: str, test: str) -> list[tuple[int, int]]:
        """On how many nodes, and with how many processes, a test was run."""
        return sorted({(key.nodes, key.ranks) for key in self._table if (key.level, key.test) == (level, test)})

    def links(self, level: str, test: str) -> list[str]:
        """On which links a test was run, in the order in which they were measured."""
        return list(dict.fromkeys(key.link for key in self._table if (key.level, key.test) == (level, test)))

    def first(self, side: Side, place: Place) -> Series | None:
        """The series of a side that was measured first."""
        found = self.every(side, place)
        self._note(side, [series.key.variant for series in found])
        return found[0] if found else None

    def under_each_control(self, side: Side, place: Place) -> list[Series]:
        """The series of a side that was measured first, under each congestion control that it was measured with."""
        found = self.every(side, place)
        by_name: dict[str, list[Series]] = {}
        for series in found:
            by_name.setdefault(peers.name_of(series.key.variant), []).append(series)
        self._note(side, list(by_name))
        first = next(iter(by_name.values()), [])
        if len(first) > 1:
            names = text.listing([series.key.variant for series in first])
            self._notes[f"{side.name} is the best of {names} at each size."] = None
        return first

    def samples(self, side: LinkSide, level: str, test: str, samples: Iterable[Sample]) -> list[Sample]:
        """The samples of the series that was measured first, those that failed too."""
        wanted = (side.link, side.interconnect, level, test)
        of_side = [
            sample
            for sample in samples
            if (sample.link, sample.interconnect, sample.level, sample.test) == wanted
            and _is_variant(sample.variant, side)
        ]
        variants = list(dict.fromkeys(sample.variant for sample in of_side))
        self._note(side, variants)
        return [sample for sample in of_side if sample.variant == variants[0]]

    def _note(self, side: Side, variants: list[str]) -> None:
        if len(variants) > 1:
            others = text.listing(variants[1:])
            self._notes[f"{side.name} is {variants[0]}, which was measured first; the run has {others} too."] = None


def _is_variant(variant: str, side: Side) -> bool:
    return any(peers.matches(variant, wanted) for wanted in side.variants)


def _is_of(key: SeriesKey, side: Side, place: Place) -> bool:
    return (
        (key.link, key.level, key.test, key.metric) == (place.link, place.level, place.test, place.metric)
        and key.interconnect == side.interconnect
        and _is_variant(key.variant, side)
        and place.scale in (None, (key.nodes, key.ranks))
    )
