"""Holds a run against thresholds."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rocelab import peers
from rocelab.acceptance.criteria import ThresholdTable
from rocelab.report import catalogue
from rocelab.results import PAIRS_LEVEL, RunInfo, Sample, runs_over_nodes
from rocelab.stats import SeriesTable, text

#: What a test is about where it has several metrics, best first.
_MAIN: Final = ("latency_us", "bandwidth_mbps", "throughput_mbps", "time_s")
#: The metrics that a rate of a link can be asked of.
_OF_RATE: Final = frozenset({"bandwidth_mbps", "throughput_mbps"})


@dataclass(frozen=True, slots=True)
class Place:
    """What was measured, as labels: empty where something does not apply."""

    link: str
    interconnect: str
    variant: str
    level: str
    test: str
    size_bytes: int
    metric: str
    unit: str
    nodes: int
    client: str = ""
    server: str = ""
    node: str = ""
    role: str = ""
    """``sending`` or ``receiving``, of a node whose pairs were measured both ways."""

    @property
    def words(self) -> str:
        """For a person."""
        size = f" {text.size(self.size_bytes)}" if self.size_bytes else ""
        node = f", {self.node} {self.role}".rstrip() if self.node else ""
        pair = f", {self.client} to {self.server}" if self.client else node
        scale = f" on {self.nodes} nodes" if self.nodes != 2 and not pair else ""
        level = "" if self.level == "network" else f"{self.level} "
        return f"{self.link} {self.interconnect} {self.variant} {level}{self.test}{size}{scale}{pair}"


@dataclass(frozen=True, slots=True)
class Check:
    """One measurement held against one bound."""

    threshold: str
    subject: str
    place: Place | None
    measured: float | None
    bound: float | None
    violation: str | None
    """Why it does not pass; None if it does."""

    @property
    def passed(self) -> bool:
        """Whether it does."""
        return self.violation is None


@dataclass(frozen=True, slots=True)
class _Value:
    place: Place
    value: float


def checks(
    thresholds: Sequence[ThresholdTable], info: RunInfo, samples: Sequence[Sample], baseline: Sequence[Sample] = ()
) -> list[Check]:
    """Every check of every threshold. What was asked for and not measured does not pass."""
    mine, before = _values(samples), {each.place: each.value for each in _values(baseline)}
    return [check for each in thresholds for check in _of_threshold(each, info, samples, mine, before)]


def _of_threshold(
    threshold: ThresholdTable,
    info: RunInfo,
    samples: Sequence[Sample],
    every: Sequence[_Value],
    before: Mapping[Place, float],
) -> Iterator[Check]:
    found = [each for each in every if _is_meant(threshold, each.place)]
    found = _of_metric(threshold, found)
    failed = {_place(each): each for each in samples if not each.ok and _is_meant(threshold, _place(each))}
    for place, sample in failed.items():
        reason = (sample.error or "no reason is known").splitlines()[0]
        yield Check(threshold.title, place.words, place, None, None, f"a measurement failed: {reason}")
    if not found and not failed:
        yield Check(threshold.title, threshold.title, None, None, None, "nothing of the kind was measured")
    for each in found:
        yield from _of_value(threshold, info, each, before)
    if threshold.within_of_median is not None:
        yield from _of_nodes(threshold, threshold.within_of_median, found)


def _is_meant(threshold: ThresholdTable, place: Place) -> bool:
    return (
        place.level == threshold.level
        and place.test == threshold.test
        and threshold.link in (None, place.link)
        and threshold.interconnect in (None, place.interconnect)
        and (threshold.variant is None or threshold.variant in (place.variant, peers.name_of(place.variant)))
        and threshold.size_bytes in (None, place.size_bytes)
    )


def _of_metric(threshold: ThresholdTable, found: Sequence[_Value]) -> list[_Value]:
    names = dict.fromkeys(each.place.metric for each in found)
    wanted = threshold.metric or next((name for name in _MAIN if name in names), next(iter(names), None))
    return [each for each in found if each.place.metric == wanted]


def _of_value(threshold: ThresholdTable, info: RunInfo, each: _Value, before: Mapping[Place, float]) -> Iterator[Check]:
    place = each.place
    is_lower_better = catalogue.metric(place.metric).better == "lower"
    if threshold.at_least is not None:
        yield _bounded(threshold, each, threshold.at_least, "at least", is_low=True)
    if threshold.at_most is not None:
        yield _bounded(threshold, each, threshold.at_most, "at most", is_low=False)
    if threshold.at_least_of_rate is not None:
        link = info.link(place.link)
        rate_mbps = None if link is None else link.rate_mbps
        part = f"{100 * threshold.at_least_of_rate:g} % of the rate, at least"
        if place.metric not in _OF_RATE:
            yield _unjudged(threshold, each, f"{place.metric} is no part of a link's rate")
        elif rate_mbps is None:
            yield _unjudged(threshold, each, f"the rate of {place.link} is not known: ask for a number with at_least")
        else:
            yield _bounded(threshold, each, threshold.at_least_of_rate * rate_mbps, part, is_low=True)
    if threshold.within_of_baseline is not None:
        part_of = threshold.within_of_baseline
        if place not in before:
            yield _unjudged(threshold, each, "the baseline has no such measurement")
        else:
            factor = 1 + part_of if is_lower_better else 1 - part_of
            words = f"{100 * part_of:g} % of the baseline ({text.quantity(before[place], place.unit)}), at "
            words += "most" if is_lower_better else "least"
            yield _bounded(threshold, each, before[place] * factor, words, is_low=not is_lower_better)


def _of_nodes(threshold: ThresholdTable, part: float, found: Sequence[_Value]) -> Iterator[Check]:
    """Each node against the median node: as the sender and as the receiver, or as either where one way was measured."""
    pairs = {(each.place.client, each.place.server) for each in found}
    both_ways = any(pair[::-1] in pairs for pair in pairs)
    by_place: dict[tuple[Place, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for each in found:
        place = each.place
        for node, role in ((place.client, "sending"), (place.server, "receiving")):
            by_place[_without_pair(place), role if both_ways else ""][node].append(each.value)
    for (common, role), by_node in by_place.items():
        is_lower_better = catalogue.metric(common.metric).better == "lower"
        typical = {node: median(values) for node, values in by_node.items()}
        middle = median(typical.values())
        factor = 1 + part if is_lower_better else 1 - part
        words = f"{100 * part:g} % of the median node ({text.quantity(middle, common.unit)}), at "
        words += "most" if is_lower_better else "least"
        for node, value in sorted(typical.items()):
            of_node = _Value(_without_pair(common, node, role), value)
            yield _bounded(threshold, of_node, middle * factor, words, is_low=not is_lower_better)


def _without_pair(place: Place, node: str = "", role: str = "") -> Place:
    return dataclasses.replace(place, client="", server="", node=node, role=role)


def _bounded(threshold: ThresholdTable, each: _Value, bound: float, words: str, *, is_low: bool) -> Check:
    holds = each.value >= bound if is_low else each.value <= bound
    unit = each.place.unit
    violation = None if holds else f"{text.quantity(each.value, unit)}; wanted: {words} {text.quantity(bound, unit)}"
    return Check(threshold.title, each.place.words, each.place, each.value, bound, violation)


def _unjudged(threshold: ThresholdTable, each: _Value, why: str) -> Check:
    return Check(threshold.title, each.place.words, each.place, each.value, None, why)


def _place(sample: Sample) -> Place:
    return Place(
        sample.link,
        sample.interconnect,
        sample.variant,
        sample.level,
        sample.test,
        sample.size_bytes or 0,
        sample.metric,
        sample.unit,
        sample.nodes,
        client=str(sample.params["client"]) if sample.level == PAIRS_LEVEL else "",
        server=str(sample.params["server"]) if sample.level == PAIRS_LEVEL else "",
    )


def _values(samples: Sequence[Sample]) -> list[_Value]:
    """What stands for the repetitions of everything that was measured."""
    of_pairs: dict[Place, list[float]] = defaultdict(list)
    for sample in samples:
        if sample.level == PAIRS_LEVEL and sample.value is not None:
            of_pairs[_place(sample)].append(sample.value)
    found = [_Value(place, median(values)) for place, values in of_pairs.items()]
    table = SeriesTable(samples)
    for key in table:
        series = table.get(key)
        assert series is not None
        for at, spread in series.spreads():
            size_bytes, nodes = (0, at) if runs_over_nodes(key.level, key.test) else (at, key.nodes)
            what = (key.link, key.interconnect, key.variant, key.level, key.test)
            found.append(_Value(Place(*what, size_bytes, key.metric, series.unit, nodes), spread.typical))
    return found
