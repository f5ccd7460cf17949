"""What Soft RoCE is held against, as data: the goals of docs/performance.md, and what is only reported."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Final

from rocelab.report.bars import TCP_HEADER_BYTES, Bar, BestTcp, Line, Side

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
_GIGABIT: Final = "ethernet-1g"

_SEND, _WRITE, _EVENTS = Side("soft-roce", "send"), Side("soft-roce", "write"), Side("soft-roce", "send-events")
_MPI = Side("soft-roce", "openmpi-ucx")
_SEND_1G, _WRITE_1G = Side("soft-roce", "send", _GIGABIT), Side("soft-roce", "write", _GIGABIT)
_EVENTS_LOADED = Side("soft-roce", "send-events-loaded", _GIGABIT)
_ANY, _POLLING, _SLEEPING = BestTcp(), BestTcp("polling"), BestTcp("blocking")
#: What is measured beside other work, and the same without that.
_BUSY_TCPS: Final = ("blocking", "busy-poll", "spin", "kernel-prefer")
_BUSY: Final = BestTcp(names=tuple(f"{name}-busy" for name in _BUSY_TCPS))
_QUIET: Final = BestTcp(
    names=("blocking@cubic", "blocking@bbr", "busy-poll@cubic", "busy-poll@bbr", "spin@cubic", "kernel-prefer@cubic")
)
#: On Ethernet's standard MTU: path MTU 1024, and TCP's segments of 1448 bytes.
_ROCE_LINE, _TCP_LINE = Line(1000, 1024), Line(1000, 1448, TCP_HEADER_BYTES)
#: By how much a ratio may be worse beside other work on the processors; and over IPv6 or without
#: CAP_NET_RAW.
_BUSY_BOUND: Final = 0.85
_COLUMN_BOUND: Final = 0.8


def _latencies() -> Iterator[Bar]:
    for name, side in (("SEND", _SEND), ("WRITE", _WRITE)):
        bar = Bar(f"{name} latency to 4 KiB / TCP that polls", "latency", side, _POLLING, "at most", 0.85)
        yield dataclasses.replace(bar, sizes_bytes=(2, 4 * _KIB))
        bar = dataclasses.replace(bar, what=f"{name} latency, 8 to 256 KiB / TCP that polls", bound=1.1)
        yield dataclasses.replace(bar, sizes_bytes=(8 * _KIB, 256 * _KIB))
        bar = dataclasses.replace(bar, what=f"{name} latency, 1 MiB / TCP that polls", bound=None)
        yield dataclasses.replace(bar, sizes_bytes=(_MIB, _MIB))
    yield Bar("READ latency / TCP that polls", "latency", Side("soft-roce", "read"), _POLLING, "at most")
    yield Bar(
        "SEND latency by events / TCP that sleeps (both may look first)", "latency", _EVENTS, _SLEEPING, "at most"
    )
    yield Bar("SEND latency / UDP, both spinning", "latency", _SEND, Side("udp", "busy-poll"), "at most", 1.35)


def _bandwidths() -> Iterator[Bar]:
    for name, side in (("SEND", _SEND), ("WRITE", _WRITE)):
        bar = Bar(f"{name} bandwidth to 16 KiB / TCP", "bandwidth", side, _ANY, "at least", 1.5)
        yield dataclasses.replace(bar, sizes_bytes=(2, 16 * _KIB))
        bar = dataclasses.replace(bar, what=f"{name} bandwidth, 64 KiB / TCP", bound=1.1)
        yield dataclasses.replace(bar, sizes_bytes=(64 * _KIB, 64 * _KIB))
        bar = dataclasses.replace(bar, what=f"{name} bandwidth from 256 KiB / TCP", bound=0.75)
        yield dataclasses.replace(bar, sizes_bytes=(256 * _KIB, 4 * _MIB))
    yield Bar("SEND bandwidth / TCP that polls", "bandwidth", _SEND, _POLLING, "at least")
    both = Bar("WRITE both ways to 4 KiB / TCP", "bidirectional-bandwidth", _WRITE, _ANY, "at least")
    yield dataclasses.replace(both, sizes_bytes=(2, 4 * _KIB))
    both = dataclasses.replace(both, what="WRITE both ways from 64 KiB / TCP", bound=0.8)
    yield dataclasses.replace(both, sizes_bytes=(64 * _KIB, _MIB))


def _processors() -> Iterator[Bar]:
    for name, side in (("WRITE", _WRITE), ("SEND by events", _EVENTS)):
        yield Bar(f"CPU time per MiB, {name} / TCP", "cpu-use", side, _ANY, "at most", 1.2)


def _mpi() -> Iterator[Bar]:
    yield Bar("MPI latency / TCP", "latency", _MPI, _ANY, "at most", 0.85, "mpi")
    for title, size, bound in (("64 KiB", 64 * _KIB, 1.0), ("1 MiB", _MIB, 0.75)):
        yield Bar(f"MPI bandwidth, {title} / TCP", "bw", _MPI, _ANY, "at least", bound, "mpi", (size, size))


def _gigabit() -> Iterator[Bar]:
    for name, side in (("SEND", _SEND_1G), ("WRITE", _WRITE_1G)):
        yield Bar(f"{name} on 1 Gbps / line rate", "bandwidth", side, _ROCE_LINE, "at least", 0.97)
    both = dataclasses.replace(_ROCE_LINE, ways=2)
    yield Bar("WRITE both ways on 1 Gbps / line rate", "bidirectional-bandwidth", _WRITE_1G, both, "at least", 0.97)
    lines = (_ROCE_LINE, _TCP_LINE)
    shares = Bar("share of 1 Gbps, SEND / TCP", "bandwidth", _SEND_1G, _ANY, "at least", 0.97, lines=lines)
    yield shares
    shares = dataclasses.replace(shares, what="share of 1 Gbps, WRITE / TCP", subject=_WRITE_1G)
    yield shares
    busy = dataclasses.replace(shares, subject=_busy(_WRITE_1G), reference=_BUSY)
    yield dataclasses.replace(busy, what="share of 1 Gbps, WRITE / TCP, busy")
    shares = dataclasses.replace(shares, what="share of 1 Gbps, WRITE both ways / TCP", test="bidirectional-bandwidth")
    yield shares
    busy = dataclasses.replace(shares, subject=_busy(_WRITE_1G), reference=_BUSY)
    yield dataclasses.replace(busy, what="share of 1 Gbps, WRITE both ways / TCP, busy")
    loaded = BestTcp(names=("blocking-loaded", "spin-loaded"))
    yield Bar("Latency under load, 1 Gbps / TCP", "latency", _EVENTS_LOADED, loaded, "at most")


def _busy(side: Side) -> Side:
    return dataclasses.replace(side, variant=f"{side.variant}-busy")


def _beside_other_work() -> Iterator[Bar]:
    bandwidth = Bar("WRITE bandwidth / the same TCPs, quiet", "bandwidth", _WRITE, _QUIET, "at least")
    yield Bar("WRITE bandwidth / TCP, busy", "bandwidth", _busy(_WRITE), _BUSY, "at least")
    what = "WRITE bandwidth / TCP, busy over quiet"
    yield Bar(what, "bandwidth", _busy(_WRITE), _BUSY, "at least", _BUSY_BOUND, quiet=bandwidth)
    latency = Bar("SEND latency / the same TCPs, quiet", "latency", _SEND, _QUIET, "at most")
    yield Bar("SEND latency / TCP, busy", "latency", _busy(_SEND), _BUSY, "at most")
    what = "SEND latency / TCP, busy over quiet"
    yield Bar(what, "latency", _busy(_SEND), _BUSY, "at most", 1 / _BUSY_BOUND, quiet=latency)


def _columns() -> Iterator[Bar]:
    for condition, words in (("ipv6", "over IPv6 / IPv4"), ("without-net-raw", "without CAP_NET_RAW / with")):
        write, send = (dataclasses.replace(side, variant=f"{side.variant}-{condition}") for side in (_WRITE, _SEND))
        yield Bar(f"WRITE bandwidth {words}", "bandwidth", write, _WRITE, "at least", _COLUMN_BOUND)
        yield Bar(f"SEND latency {words}", "latency", send, _SEND, "at most", 1 / _COLUMN_BOUND)


def _shapes() -> Iterator[Bar]:
    yield Bar("WRITE on 200 QPs / 1 QP", "bandwidth", Side("soft-roce", "write-200qp"), _WRITE, "at least", 0.9)
    for name, side in (("SEND", _SEND), ("WRITE", _WRITE)):
        standard = dataclasses.replace(side, link="direct-1500")
        yield Bar(f"{name}, MTU 1500 / 9000", "bandwidth", standard, side, "at least", 0.85)
    yield Bar("SEND over MTU 1500 / TCP", "bandwidth", Side("soft-roce", "send", "direct-1500"), _ANY, "at least")
    for mtu in (1024, 2048):
        smaller = Side("soft-roce", f"send-mtu{mtu}")
        yield Bar(f"SEND, path MTU {mtu} / 4096", "bandwidth", smaller, _SEND, "at least")


BARS: tuple[Bar, ...] = (
    *_latencies(),
    *_bandwidths(),
    *_processors(),
    *_mpi(),
    *_gigabit(),
    *_beside_other_work(),
    *_columns(),
    *_shapes(),
)
