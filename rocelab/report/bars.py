"""What a bar is, and what a run says of bars (`rocelab bars`); `bar_list` has those that there are."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from rocelab import peers
from rocelab.report import catalogue
from rocelab.report.model import RunModel, StyledSeries
from rocelab.stats import Better, Ratio, Series, SeriesKey, best_to_best
from rocelab.stats import Side as RatioSide

_ANY_SIZE: Final = sys.maxsize


@dataclass(frozen=True, slots=True)
class Side:
    """One series of the run; where that is over TCP, under the congestion control that is best at each size."""

    interconnect: str
    variant: str
    """Without a congestion control, it is meant under each that the run has."""
    link: str = "direct"

    def has(self, key: SeriesKey) -> bool:
        """Whether a series is one of it."""
        place = (key.link, key.interconnect)
        return place == (self.link, self.interconnect) and peers.matches(key.variant, self.variant)


@dataclass(frozen=True, slots=True)
class BestTcp:
    """On the subject's link, the best of the TCPs that wait this way, or of all (None), at each size."""

    waiting: peers.Waiting | None = None
    names: tuple[str, ...] = ()
    """Only these; without a congestion control, under each. None named: those that Soft RoCE is always held against."""


ROCE_HEADER_BYTES: Final = 82
"""BTH 12, ICRC 4, UDP 8, IPv4 20, Ethernet 14, and 24 of preamble, checksum and gap."""
TCP_HEADER_BYTES: Final = 90
"""TCP with timestamps 32, IPv4 20, Ethernet 14, and 24 of preamble, checksum and gap."""


@dataclass(frozen=True, slots=True)
class Line:
    """What a link carries of messages: its rate, less the headers of packets with so much payload."""

    rate_mbps: float
    packet_bytes: int
    header_bytes: int = ROCE_HEADER_BYTES
    ways: int = 1

    @property
    def payload_mbps(self) -> float:
        """Of full packets without a gap between them."""
        return self.ways * self.rate_mbps * self.packet_bytes / (self.packet_bytes + self.header_bytes)


@dataclass(frozen=True, slots=True)
class Bar:
    """A ratio at every size that was measured; to be at most, or at least, so much, or only reported."""

    what: str
    test: Literal["latency", "bandwidth", "bidirectional-bandwidth", "cpu-use", "bw"]
    subject: Side
    reference: Side | BestTcp | Line
    sense: Literal["at most", "at least"]
    bound: float | None = None
    level: Literal["network", "mpi"] = "network"
    sizes_bytes: tuple[int, int] = (0, _ANY_SIZE)
    """The least and the greatest size that it is about."""
    lines: tuple[Line, Line] | None = None
    """What the link carries of the subject's messages and of the reference's: the ratio is of their shares of that."""
    quiet: Bar | None = None
    """The ratio is held against this one's, which was measured without other work on the processors."""


@dataclass(frozen=True, slots=True)
class Point:
    """A ratio at a size: subject over reference, as measured."""

    size_bytes: int
    ratio: Ratio
    reference: str
    """Which TCP, or what else it is held against."""
    control: str | None = None
    """The congestion control of the subject, which is the best of those it was measured under; None: it has none."""

    @property
    def against(self) -> str:
        """The reference, and under which congestion control the subject is held against it."""
        return self.reference if self.control is None else f"{self.reference}; iWARP under {self.control}"

    def times(self, factor: float) -> Point:
        """The same ratio in another measure."""
        low, high = (None if end is None else end * factor for end in (self.ratio.low, self.ratio.high))
        scaled = dataclasses.replace(self.ratio, estimate=self.ratio.estimate * factor, low=low, high=high)
        return dataclasses.replace(self, ratio=scaled)

    def over(self, other: Point) -> Point:
        """Divided by another's ratio at the size, of other repetitions: errors of logarithms add up as squares."""
        mine, theirs = self.ratio, other.ratio
        ratio = Ratio(mine.estimate / theirs.estimate, None, None, None, mine.method)
        if not (mine.low is None or mine.high is None or theirs.low is None or theirs.high is None):
            down = math.hypot(math.log(mine.estimate / mine.low), math.log(theirs.high / theirs.estimate))
            up = math.hypot(math.log(mine.high / mine.estimate), math.log(theirs.estimate / theirs.low))
            low, high = ratio.estimate * math.exp(-down), ratio.estimate * math.exp(up)
            ratio = dataclasses.replace(ratio, low=low, high=high)
        return dataclasses.replace(self, ratio=ratio)

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


def held(model: RunModel, bars: Sequence[Bar]) -> list[Held]:
    """Every bar with what the run says to it, but for those of an interconnect that the run does not have."""
    present = {key.interconnect for key in model.series_keys}
    return [Held(bar, tuple(_points(bar, model))) for bar in bars if bar.subject.interconnect in present]


def _points(bar: Bar, model: RunModel) -> list[Point]:
    found = [point for point in _measured(bar, model) if bar.sizes_bytes[0] <= point.size_bytes <= bar.sizes_bytes[1]]
    if bar.lines is not None:
        ours, theirs = bar.lines
        found = [point.times(theirs.payload_mbps / ours.payload_mbps) for point in found]
    if bar.quiet is not None:
        quiet = {point.size_bytes: point for point in _points(bar.quiet, model)}
        found = [point.over(quiet[point.size_bytes]) for point in found if point.size_bytes in quiet]
    return found


def _measured(bar: Bar, model: RunModel) -> list[Point]:
    subjects = _series(bar, model, bar.subject)
    if isinstance(bar.reference, Line):
        return [_of_line(each, size, bar.reference) for each in subjects for size in each.sizes]
    references = _references(bar, model)
    better: Better = "lower" if bar.sense == "at most" else "higher"
    others = [each.series for each in references]
    points = []
    for size in sorted({size for each in subjects for size in each.sizes}):
        found = best_to_best(subjects, others, size, better=better)
        if found is not None:
            at, best = found
            control = peers.control_words(subjects[at].key.variant, model.default_control)
            points.append(Point(size, best.ratio, references[best.best].label, control))
    return points


def _series(bar: Bar, model: RunModel, side: Side) -> list[Series]:
    if (bar.level, bar.test) == catalogue.CPU_TEST:
        return [each.series for each in model.cpu(side.link, "us_per_mib") if side.has(each.series.key)]
    metric = "latency_us" if bar.test == "latency" else "bandwidth_mbps"
    wanted = SeriesKey(side.link, bar.level, bar.test, side.interconnect, side.variant, metric)
    keys = (key for key in model.series_keys if side.has(key) and key._replace(variant=side.variant) == wanted)
    return [series for key in keys if (series := model.series_of(key)) is not None]


def _references(bar: Bar, model: RunModel) -> list[StyledSeries]:
    assert not isinstance(bar.reference, Line)
    if isinstance(bar.reference, Side):
        sides = [bar.reference]
    else:
        variants = dict.fromkeys(key.variant for key in model.series_keys if key.interconnect == peers.TCP)
        names = bar.reference.names
        chosen = (
            [each for each in variants if any(peers.matches(each, name) for name in names)]
            if names
            else peers.references(bar.level, variants, bar.reference.waiting)
        )
        sides = [Side(peers.TCP, variant, bar.subject.link) for variant in chosen]
    return [model.styled(series) for side in sides for series in _series(bar, model, side)]


def _of_line(subject: Series, size_bytes: int, line: Line) -> Point:
    spread, rate_mbps = subject.spread(size_bytes), line.payload_mbps
    ratio = Ratio(spread.typical / rate_mbps, spread.low / rate_mbps, spread.high / rate_mbps, None, "none")
    return Point(size_bytes, ratio, "line rate")
