"""Holds the simulator against published series: what it predicts of each, and by how much it is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from rocelab import profiles
from rocelab.profiles.series import Point, Series, Source, middle_of_sources, sources
from rocelab.virtual.scenario import TIME_LIMIT_NS, host_part, switch_part
from rocelab.virtual.simulator import simulate
from rocelab.virtual.steps import bandwidth_messages

#: A cable of five metres, as in studies.
_PROPAGATION_NS = 25
_ITERATIONS = 3
#: Requests under way in a test of bandwidth: the default of perftest, whose programs have this
#: prefix, and the window of OSU's.
_PERFTEST = "ib_"
_DEPTH_OF_PERFTEST, _DEPTH_OF_MPI = 128, 64
#: READs one after the other, of which the last three quarters count.
_READS = 16
#: What surrounds a packet's data on a cable: Ethernet with preamble, gap and check, IPv4, UDP, BTH
#: and ICRC; or LRH, BTH, ICRC and VCRC.
_HEADERS_BYTES = {"ethernet": 82, "infiniband": 26}
Part = Literal["fitted", "held out", "shape only"]


@dataclass(frozen=True, slots=True)
class Predicted:
    """A point of a series."""

    size_bytes: int
    published: float
    """In us, or 10^9 bit/s."""
    predicted: float
    plain: float | None = None
    """Of a bandwidth, what the time of a message and the rate of the cable alone make of it."""

    @property
    def error(self) -> float:
        """By which part of the published value the prediction is above it."""
        return self.predicted / self.published - 1


@dataclass(frozen=True, slots=True)
class Held:
    """A series with its predictions."""

    source: Source
    series: Series
    points: tuple[Predicted, ...]

    @property
    def part(self) -> Part:
        """What the series is for. One that rocelab does not have was never fitted to."""
        if self.series.grade == "C":
            return "shape only"
        is_known = self.source.id in sources()
        return "fitted" if is_known and not self.source.is_held_out else "held out"

    @property
    def median_error(self) -> float:
        """The middle of the errors of its sizes, without their signs."""
        return median(abs(point.error) for point in self.points)

    @property
    def plain_error(self) -> float | None:
        """The same of what the time of a message and the rate of the cable alone make of it."""
        errors = [abs(point.plain / point.published - 1) for point in self.points if point.plain is not None]
        return median(errors) if errors else None

    def within(self, percent: float) -> int:
        """At how many of its sizes the prediction is off by no more."""
        return sum(abs(point.error) <= percent / 100 for point in self.points)

    @property
    def worst(self) -> Predicted:
        """The size at which the prediction is furthest off."""
        return max(self.points, key=lambda point: abs(point.error))


@dataclass(frozen=True, slots=True)
class Bound:
    """How good predictions of a metric are, over all series of a part."""

    part: Part
    metric: Literal["latency", "bandwidth"]
    sources: int
    series: int
    median_error: float
    """The middle over sources of the middle error of their series."""
    within_10: float
    """The part of all their sizes at which the prediction is off by no more than a tenth."""
    worst_error: float
    """The largest error of any size, without its sign."""


def hold(held_against: Sequence[Source]) -> list[Held]:
    """Predict every series. Raises ProfileError (a profile that is not there) and ToolError (no simulator)."""
    all_series = [(source, series) for source in held_against for series in source.series]
    judged = [_judged(series) for _, series in all_series]
    jobs = [(series, size) for (_, series), points in zip(all_series, judged, strict=True) for size, _ in points]
    # Profiles are looked up here, where an error names the series.
    scenarios = [scenario_of(series, size) for series, size in jobs]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        outcomes = iter(list(pool.map(simulate, scenarios)))
    held = []
    for (source, series), published_points in zip(all_series, judged, strict=True):
        points = tuple(
            Predicted(size, published, _value(series, size, next(outcomes)), _plain_gbps(series, size))
            for size, published in published_points
        )
        held.append(Held(source, series, points))
    return held


def _judged(series: Series) -> Sequence[Point]:
    """The points that are predicted. Raises ProfileError if there are none.

    A message that an MPI library does not copy waits for its receiver, whose time is not predicted. That it waits
    hardly matters where many are under way.
    """
    copied_bytes = _stack(series).copied_bytes
    points = series.judged(copied_bytes if series.metric == "latency" and copied_bytes else None)
    if not points:
        raise profiles.ProfileError(
            f"series {series.id}: all of its messages are longer than {copied_bytes} B, and wait for their receiver"
        )
    return points


def _stack(series: Series) -> profiles.Stack:
    try:
        return profiles.stack(series.stack)
    except profiles.ProfileError as error:
        raise profiles.ProfileError(f"series {series.id}: {error}") from None


def bounds(held: Sequence[Held]) -> Iterator[Bound]:
    """By part and metric, as far as there are series of them."""
    for part in ("held out", "fitted", "shape only"):
        for metric in ("latency", "bandwidth"):
            of_it = [each for each in held if each.part == part and each.series.metric == metric]
            if of_it:
                error, count = middle_of_sources((each.source.id, each.median_error) for each in of_it)
                yield Bound(
                    part,
                    metric,
                    count,
                    len(of_it),
                    error,
                    sum(each.within(10) for each in of_it) / sum(len(each.points) for each in of_it),
                    max(abs(each.worst.error) for each in of_it),
                )


def scenario_of(series: Series, size_bytes: int) -> dict[str, Any]:
    """What rocelab-virtual reads to predict a point. Raises ProfileError."""
    try:
        adapter = profiles.adapter(series.adapter)
        host = host_part(adapter, profiles.host(series.host), profiles.stack(series.stack))
        between = None if series.switch is None else profiles.switch(series.switch)
    except profiles.ProfileError as error:
        raise profiles.ProfileError(f"series {series.id}: {error}") from None
    if adapter.service != "rdma":
        raise profiles.ProfileError(f"series {series.id}: {series.adapter} has no RDMA, and only RDMA is predicted")
    if between is not None and between.kind != adapter.port.kind:
        raise profiles.ProfileError(
            f"series {series.id}: {series.adapter} is {adapter.port.kind}, and {series.switch} is {between.kind}"
        )
    switch = None if between is None else switch_part(between)
    host["mtu_bytes"] = series.path_mtu_bytes
    if series.inline_bytes is not None:
        host["inline_bytes"] = series.inline_bytes
    return {
        "seed": 1,
        "host": host,
        "topology": {"kind": "back-to-back"} if switch is None else {"kind": "one-switch", "hosts": 2},
        "switch": switch,
        "propagation_ns": _PROPAGATION_NS,
        "traffic": _traffic(series, size_bytes),
        "time_limit_ns": TIME_LIMIT_NS,
    }


def _traffic(series: Series, size_bytes: int) -> dict[str, Any]:
    is_latency = series.metric == "latency"
    # What WRITEs take is what SENDs take: both ends look for the last byte, or its completion.
    if is_latency and series.operation != "read":
        return {"kind": "ping-pong", "size_bytes": size_bytes, "iterations": _ITERATIONS, "warmup": 1, "rails": 1}
    depth = _DEPTH_OF_PERFTEST if series.tool.startswith(_PERFTEST) else _DEPTH_OF_MPI
    return {
        "kind": "streams",
        "pattern": {"kind": "both-ways" if series.both_ways else "pair"},
        "operation": series.operation,
        "size_bytes": size_bytes,
        "queue_pairs": 1,
        "depth": 1 if is_latency else depth,
        "messages": _READS if is_latency else bandwidth_messages(size_bytes),
        "warmup_ns": 0,
        "measured_ns": 0,
    }


def _plain_gbps(series: Series, size_bytes: int) -> float | None:
    """What a prediction has to be better than: a message after the other, up to the rate of the cable less headers."""
    if series.metric != "bandwidth":
        return None
    port, stack = profiles.adapter(series.adapter).port, profiles.stack(series.stack)
    mtu_bytes = series.path_mtu_bytes
    of_cable = port.data_rate_gbps * mtu_bytes / (mtu_bytes + _HEADERS_BYTES[port.kind])
    return (2 if series.both_ways else 1) * min(8 * size_bytes / stack.send_ns, of_cable)


def _value(series: Series, size_bytes: int, outcome: Mapping[str, Any]) -> float:
    if series.metric == "bandwidth":
        return float(outcome["throughput_gbps"])
    if series.operation == "read":
        return size_bytes * 8e-3 / float(outcome["throughput_gbps"])
    return float(median(outcome["latencies_ns"])) / 1000
