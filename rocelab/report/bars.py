"""What Soft RoCE is held against on this machine, as data, and what a run says of it (`rocelab bars`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rocelab import peers
from rocelab.report.model import RunModel, StyledSeries
from rocelab.stats import Better, Ratio, Series, SeriesKey
from rocelab.stats import Side as RatioSide


@dataclass(frozen=True, slots=True)
class Side:
    """One series of the run."""

    interconnect: str
    variant: str
    link: str = "direct"


@dataclass(frozen=True, slots=True)
class BestTcp:
    """On the subject's link, the best of the TCPs that wait this way, or of all (None), at each size."""

    waiting: peers.Waiting | None = None
    names: tuple[str, ...] = ()
    """Only these, under every congestion control; none named: those that Soft RoCE is always held against."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a link carries of messages: its rate, less the headers of RoCEv2 packets with the path MTU."""

    rate_mbps: float
    path_mtu_bytes: int
    ways: int = 1

    @property
    def payload_mbps(self) -> float:
        """BTH 12, ICRC 4, UDP 8, IPv4 20, Ethernet 14 bytes and 24 of preamble, checksum and gap for each packet."""
        return self.ways * self.rate_mbps * self.path_mtu_bytes / (self.path_mtu_bytes + 82)


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio at every size that was measured; to be at most, or at least, so much, or only reported."""

    what: str
    test: Literal["latency", "bandwidth", "bidirectional-bandwidth", "bw"]
    subject: Side
    reference: Side | BestTcp | Line
    sense: Literal["at most", "at least"]
    bound: float | None = None
    level: Literal["network", "mpi"] = "network"


@dataclass(frozen=True, slots=True)
class Point:
    """A ratio at a size: subject over reference, as measured."""

    size_bytes: int
    ratio: Ratio
    reference: str
    """Which TCP, or what else it is held against."""

    def is_ahead(self, sense: str) -> bool | None:
        """Whether the subject is the better one, as far as the confidence goes."""
        if self.ratio.side is RatioSide.UNCLEAR:
            return None
        return (self.ratio.side is RatioSide.BELOW) == (sense == "at most")


@dataclass(frozen=True, slots=True)
class Held:
    """A bar and what the run says."""

    bar: Bar
    points: tuple[Point, ...]
    """Ascending in size; none where the run has no samples of both sides."""

    @property
    def worst(self) -> Point | None:
        """Where the ratio is furthest from the bar."""
        choose = max if self.bar.sense == "at most" else min
        return choose(self.points, key=lambda point: point.ratio.estimate, default=None)

    @property
    def typical(self) -> float:
        """Geometric mean over the sizes."""
        if not self.points:
            return math.nan
        return math.exp(sum(math.log(point.ratio.estimate) for point in self.points) / len(self.points))

    @property
    def verdict(self) -> str:
        """Judged by the worst size and its interval; against TCP without a bar, at how many sizes it is ahead."""
        worst = self.worst
        if worst is None:
            return "not measured"
        if self.bar.bound is None:
            return self._balance() if isinstance(self.bar.reference, BestTcp) else "reported"
        met = _is_within(self.bar, worst.ratio.estimate)
        ends = [end for end in (worst.ratio.low, worst.ratio.high) if end is not None]
        is_sure = bool(ends) and all(_is_within(self.bar, end) == met for end in ends)
        return ("met" if met else "not met") + ("" if is_sure else ", unsure")

    def _balance(self) -> str:
        sides = [point.is_ahead(self.bar.sense) for point in self.points]
        counts = {"ahead": sides.count(True), "behind": sides.count(False), "unclear": sides.count(None)}
        return ", ".join(f"{word} at {count}" for word, count in counts.items() if count)


def _is_within(bar: Bar, ratio: float) -> bool:
    assert bar.bound is not None
    return ratio <= bar.bound if bar.sense == "at most" else ratio >= bar.bound


_SEND, _WRITE, _EVENTS = Side("soft-roce", "send"), Side("soft-roce", "write"), Side("soft-roce", "send-events")
_MPI = Side("soft-roce", "openmpi-ucx")
_SEND_1G, _WRITE_1G = Side("soft-roce", "send", "ethernet-1g"), Side("soft-roce", "write", "ethernet-1g")
_EVENTS_LOADED = Side("soft-roce", "send-events-loaded", "ethernet-1g")
_ANY, _POLLING, _SLEEPING = BestTcp(), BestTcp("polling"), BestTcp("blocking")

BARS: tuple[Bar, ...] = (
    Bar("SEND latency / TCP that polls", "latency", _SEND, _POLLING, "at most"),
    Bar("WRITE latency / TCP that polls", "latency", _WRITE, _POLLING, "at most"),
    Bar("READ latency / TCP that polls", "latency", Side("soft-roce", "read"), _POLLING, "at most"),
    Bar("SEND latency by events / TCP that sleeps (both may look first)", "latency", _EVENTS, _SLEEPING, "at most"),
    Bar("SEND latency / UDP, both spinning", "latency", _SEND, Side("udp", "busy-poll"), "at most", 1.35),
    Bar("SEND bandwidth / TCP", "bandwidth", _SEND, _ANY, "at least"),
    Bar("SEND bandwidth / TCP that polls", "bandwidth", _SEND, _POLLING, "at least"),
    Bar("WRITE bandwidth / TCP", "bandwidth", _WRITE, _ANY, "at least"),
    Bar("WRITE both ways / TCP", "bidirectional-bandwidth", _WRITE, _ANY, "at least"),
    Bar("WRITE on 200 QPs / 1 QP", "bandwidth", Side("soft-roce", "write-200qp"), _WRITE, "at least", 0.9),
    Bar("SEND, MTU 1500 / 9000", "bandwidth", Side("soft-roce", "send", "direct-1500"), _SEND, "at least", 0.85),
    Bar("WRITE, MTU 1500 / 9000", "bandwidth", Side("soft-roce", "write", "direct-1500"), _WRITE, "at least", 0.85),
    Bar("SEND over MTU 1500 / TCP", "bandwidth", Side("soft-roce", "send", "direct-1500"), _ANY, "at least"),
    *(
        Bar(f"SEND, path MTU {mtu} / 4096", "bandwidth", Side("soft-roce", f"send-mtu{mtu}"), _SEND, "at least")
        for mtu in (1024, 2048)
    ),
    Bar("SEND on 1 Gbps / line rate", "bandwidth", _SEND_1G, Line(1000, 1024), "at least", 0.97),
    Bar("WRITE on 1 Gbps / line rate", "bandwidth", _WRITE_1G, Line(1000, 1024), "at least", 0.97),
    Bar("SEND on 1 Gbps / TCP", "bandwidth", _SEND_1G, _ANY, "at least"),
    Bar(
        "WRITE both ways on 1 Gbps / line rate",
        "bidirectional-bandwidth",
        _WRITE_1G,
        Line(1000, 1024, ways=2),
        "at least",
        0.97,
    ),
    Bar(
        "Latency under load, 1 Gbps / TCP",
        "latency",
        _EVENTS_LOADED,
        BestTcp(names=("blocking-loaded", "spin-loaded")),
        "at most",
    ),
    Bar("MPI latency / TCP", "latency", _MPI, _ANY, "at most", level="mpi"),
    Bar("MPI bandwidth / TCP", "bw", _MPI, _ANY, "at least", level="mpi"),
)


def held(model: RunModel, bars: Sequence[Bar] = BARS) -> list[Held]:
    """Every bar with what the run says to it."""
    return [Held(bar, tuple(_points(bar, model))) for bar in bars]


def _points(bar: Bar, model: RunModel) -> list[Point]:
    subject = model.series_of(_key(bar, bar.subject.link, bar.subject.interconnect, bar.subject.variant))
    if subject is None:
        return []
    if isinstance(bar.reference, Line):
        return [_of_line(subject, size, bar.reference) for size in subject.sizes]
    references = _references(bar, model)
    better: Better = "lower" if bar.sense == "at most" else "higher"
    found = {
        size: subject.ratio_to_best([each.series for each in references], size, better=better) for size in subject.sizes
    }
    return [Point(size, best.ratio, references[best.best].label) for size, best in found.items() if best is not None]


def _key(bar: Bar, link: str, interconnect: str, variant: str) -> SeriesKey:
    metric = "latency_us" if bar.test == "latency" else "bandwidth_mbps"
    return SeriesKey(link, bar.level, bar.test, interconnect, variant, metric)


def _references(bar: Bar, model: RunModel) -> list[StyledSeries]:
    assert not isinstance(bar.reference, Line)
    if isinstance(bar.reference, Side):
        side = bar.reference
        series = model.series_of(_key(bar, side.link, side.interconnect, side.variant))
        return [] if series is None else [model.styled(series)]
    variants = dict.fromkeys(key.variant for key in model.series_keys if key.interconnect == peers.TCP)
    names = bar.reference.names
    chosen = (
        [each for each in variants if peers.name_of(each) in names]
        if names
        else peers.references(bar.level, variants, bar.reference.waiting)
    )
    found = (model.series_of(_key(bar, bar.subject.link, peers.TCP, variant)) for variant in chosen)
    return [model.styled(series) for series in found if series is not None]


def _of_line(subject: Series, size_bytes: int, line: Line) -> Point:
    spread, rate_mbps = subject.spread(size_bytes), line.payload_mbps
    ratio = Ratio(spread.typical / rate_mbps, spread.low / rate_mbps, spread.high / rate_mbps, None, "none")
    return Point(size_bytes, ratio, "line rate")
