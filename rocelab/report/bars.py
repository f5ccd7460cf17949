"""What Soft RoCE is to reach on this machine, as data, and how a run is held against it (`rocelab bars`)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rocelab.report.model import RunModel
from rocelab.stats import Ratio, Series, SeriesKey, SeriesTable


@dataclass(frozen=True, slots=True)
class Side:
    """One series of the run."""

    interconnect: str
    variant: str
    link: str = "direct"


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
    """A ratio that is to be at most, or at least, so much at every size; or is only reported."""

    what: str
    test: Literal["latency", "bandwidth", "bidirectional-bandwidth", "bw"]
    sizes_bytes: tuple[int, ...]
    subject: Side
    reference: Side | Line
    sense: Literal["at most", "at least"]
    bound: float | None
    level: Literal["network", "mpi"] = "network"


@dataclass(frozen=True, slots=True)
class Held:
    """A bar and what the run says: the size at which the ratio is worst, and the typical ratio."""

    bar: Bar
    worst: Ratio | None
    """None where the run has no samples of both sides."""
    worst_size_bytes: int
    typical: float
    """Geometric mean over the sizes."""

    @property
    def verdict(self) -> str:
        """Judged by the worst size, and by the interval where it leaves no doubt."""
        if self.worst is None:
            return "not measured"
        if self.bar.bound is None:
            return "reported"
        met = _is_within(self.bar, self.worst.estimate)
        ends = [end for end in (self.worst.low, self.worst.high) if end is not None]
        is_sure = bool(ends) and all(_is_within(self.bar, end) == met for end in ends)
        return ("met" if met else "not met") + ("" if is_sure else ", unsure")


def _is_within(bar: Bar, ratio: float) -> bool:
    assert bar.bound is not None
    return ratio <= bar.bound if bar.sense == "at most" else ratio >= bar.bound


_SMALL = (2, 64, 512, 4096)
_TINY = (2, 64, 256)
_LARGE = (65536, 1 << 20, 4 << 20)
_WAYS = (65536, 1 << 20)
_MPI_SMALL = (8, 1024, 2048, 4096, 8192)
_SEND, _WRITE = Side("soft-roce", "send"), Side("soft-roce", "write")
_BLOCKING, _POLLING = Side("tcp", "blocking"), Side("tcp", "busy-poll")
_MPI, _MPI_UCX, _MPI_OB1 = Side("soft-roce", "openmpi-ucx"), Side("tcp", "openmpi-ucx"), Side("tcp", "openmpi-ob1")
_EVENTS_LOADED, _BLOCKING_LOADED = (
    Side("soft-roce", "send-events-loaded", "ethernet-1g"),
    Side("tcp", "blocking-loaded", "ethernet-1g"),
)
_SEND_1G, _WRITE_1G = Side("soft-roce", "send", "ethernet-1g"), Side("soft-roce", "write", "ethernet-1g")

BARS: tuple[Bar, ...] = (
    Bar("SEND latency / TCP busy-polling", "latency", _SMALL, _SEND, _POLLING, "at most", 0.85),
    Bar("SEND latency / TCP blocking", "latency", _SMALL, _SEND, _BLOCKING, "at most", 0.40),
    Bar("WRITE latency / TCP busy-polling", "latency", _SMALL, _WRITE, _POLLING, "at most", 1.0),
    Bar("READ latency / TCP busy-polling", "latency", _SMALL, Side("soft-roce", "read"), _POLLING, "at most", None),
    Bar(
        "SEND latency by events / TCP blocking",
        "latency",
        _SMALL,
        Side("soft-roce", "send-events"),
        _BLOCKING,
        "at most",
        1.1,
    ),
    Bar("SEND latency / UDP, both spinning", "latency", (64,), _SEND, Side("udp", "busy-poll"), "at most", 1.35),
    Bar("SEND rate / TCP_NODELAY", "bandwidth", _TINY, _SEND, Side("tcp", "no-delay"), "at least", 2.0),
    Bar("SEND bandwidth / TCP", "bandwidth", _LARGE, _SEND, _BLOCKING, "at least", 1.25),
    Bar("WRITE bandwidth / TCP", "bandwidth", _LARGE, _WRITE, _BLOCKING, "at least", 1.25),
    Bar("WRITE both ways / TCP", "bidirectional-bandwidth", _WAYS, _WRITE, _BLOCKING, "at least", 1.2),
    Bar("WRITE on 200 QPs / 1 QP", "bandwidth", _WAYS, Side("soft-roce", "write-200qp"), _WRITE, "at least", 0.9),
    Bar(
        "SEND, MTU 1500 / 9000",
        "bandwidth",
        _LARGE,
        Side("soft-roce", "send", "direct-1500"),
        _SEND,
        "at least",
        0.85,
    ),
    Bar(
        "WRITE, MTU 1500 / 9000",
        "bandwidth",
        _LARGE,
        Side("soft-roce", "write", "direct-1500"),
        _WRITE,
        "at least",
        0.85,
    ),
    *(
        Bar(
            f"SEND, path MTU {mtu} / 4096",
            "bandwidth",
            _WAYS,
            Side("soft-roce", f"send-mtu{mtu}"),
            _SEND,
            "at least",
            None,
        )
        for mtu in (1024, 2048)
    ),
    Bar("SEND on 1 Gbps / line rate", "bandwidth", _WAYS, _SEND_1G, Line(1000, 1024), "at least", 0.97),
    Bar("WRITE on 1 Gbps / line rate", "bandwidth", _WAYS, _WRITE_1G, Line(1000, 1024), "at least", 0.97),
    Bar(
        "WRITE both ways on 1 Gbps / line rate",
        "bidirectional-bandwidth",
        _WAYS,
        _WRITE_1G,
        Line(1000, 1024, ways=2),
        "at least",
        0.97,
    ),
    Bar("Latency under load, 1 Gbps / TCP", "latency", (64,), _EVENTS_LOADED, _BLOCKING_LOADED, "at most", None),
    Bar("MPI latency / UCX on TCP", "latency", _MPI_SMALL, _MPI, _MPI_UCX, "at most", 0.7, "mpi"),
    Bar("MPI latency / Open MPI's TCP", "latency", _MPI_SMALL, _MPI, _MPI_OB1, "at most", 0.7, "mpi"),
    Bar("MPI bandwidth / UCX on TCP", "bw", _WAYS, _MPI, _MPI_UCX, "at least", 1.2, "mpi"),
    Bar("MPI bandwidth / Open MPI's TCP", "bw", _WAYS, _MPI, _MPI_OB1, "at least", 1.2, "mpi"),
)


def held(model: RunModel, bars: Sequence[Bar] = BARS) -> list[Held]:
    """Every bar with what the run says to it."""
    table = SeriesTable(model.samples)
    return [_held(bar, table) for bar in bars]


def _held(bar: Bar, table: SeriesTable) -> Held:
    subject = _series(bar, bar.subject, table)
    ratios = {size: ratio for size in bar.sizes_bytes if (ratio := _ratio(bar, subject, size, table)) is not None}
    if not ratios:
        return Held(bar, None, bar.sizes_bytes[0], math.nan)
    choose = max if bar.sense == "at most" else min
    worst = choose(ratios, key=lambda size: ratios[size].estimate)
    typical = math.exp(sum(math.log(ratio.estimate) for ratio in ratios.values()) / len(ratios))
    return Held(bar, ratios[worst], worst, typical)


def _series(bar: Bar, side: Side, table: SeriesTable) -> Series | None:
    metric = "latency_us" if bar.test == "latency" else "bandwidth_mbps"
    return table.get(SeriesKey(side.link, bar.level, bar.test, side.interconnect, side.variant, metric))


def _ratio(bar: Bar, subject: Series | None, size_bytes: int, table: SeriesTable) -> Ratio | None:
    if subject is None or size_bytes not in subject.values:
        return None
    if isinstance(bar.reference, Line):
        spread, line = subject.spread(size_bytes), bar.reference.payload_mbps
        return Ratio(spread.median / line, spread.low / line, spread.high / line, None, "none")
    reference = _series(bar, bar.reference, table)
    return None if reference is None else subject.ratio_to(reference, size_bytes)
