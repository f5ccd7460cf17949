"""What Soft RoCE and iWARP are held against, as data: the goals of docs/performance.md, and what is only reported."""

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


def _by_size(bar: Bar, *parts: tuple[str, int, int, float | None]) -> Iterator[Bar]:
    """A bar with a goal for each range of sizes: its name, the least and the greatest, and the bound."""
    for words, least, greatest, bound in parts:
        yield dataclasses.replace(bar, what=bar.what.format(words), sizes_bytes=(least, greatest), bound=bound)


def _latencies() -> Iterator[Bar]:
    for name, side in (("SEND", _SEND), ("WRITE", _WRITE)):
        yield from _by_size(
            Bar(f"{name} latency{{}} / TCP that polls", "latency", side, _POLLING, "at most"),
            (" to 4 KiB", 2, 4 * _KIB, 0.85),
            (", 8 to 256 KiB", 8 * _KIB, 256 * _KIB, 1.1),
            (", 1 MiB", _MIB, _MIB, None),
        )
    yield Bar("READ latency / TCP that polls", "latency", Side("soft-roce", "read"), _POLLING, "at most")
    yield Bar(
        "SEND latency by events / TCP that sleeps (both may look first)", "latency", _EVENTS, _SLEEPING, "at most"
    )
    yield Bar("SEND latency / UDP, both spinning", "latency", _SEND, Side("udp", "busy-poll"), "at most", 1.35)


def _bandwidths() -> Iterator[Bar]:
    for name, side in (("SEND", _SEND), ("WRITE", _WRITE)):
        yield from _by_size(
            Bar(f"{name} bandwidth{{}} / TCP", "bandwidth", side, _ANY, "at least"),
            (" to 16 KiB", 2, 16 * _KIB, 1.5),
            (", 64 KiB", 64 * _KIB, 64 * _KIB, 1.1),
            (" from 256 KiB", 256 * _KIB, 4 * _MIB, 0.75),
        )
    yield Bar("SEND bandwidth / TCP that polls", "bandwidth", _SEND, _POLLING, "at least")
    yield from _by_size(
        Bar("WRITE both ways{} / TCP", "bidirectional-bandwidth", _WRITE, _ANY, "at least"),
        (" to 4 KiB", 2, 4 * _KIB, None),
        (" from 64 KiB", 64 * _KIB, _MIB, 0.8),
    )


def _processors() -> Iterator[Bar]:
    for name, side in (("WRITE", _WRITE), ("SEND by events", _EVENTS)):
        yield Bar(f"CPU time per MiB, {name} / TCP", "cpu-use", side, _ANY, "at most", 1.2)


def _mpi() -> Iterator[Bar]:
    yield Bar("MPI latency / TCP", "latency", _MPI, _ANY, "at most", 0.85, "mpi")
    yield from _by_size(
        Bar("MPI bandwidth, {} / TCP", "bw", _MPI, _ANY, "at least", level="mpi"),
        ("64 KiB", 64 * _KIB, 64 * _KIB, 1.0),
        ("1 MiB", _MIB, _MIB, 0.75),
    )


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


def _iwarp() -> Iterator[Bar]:
    """The third transport: against the same TCPs, and against Soft RoCE's same operation."""
    for name, roce in (("SEND", _SEND), ("WRITE", _WRITE)):
        side = dataclasses.replace(roce, interconnect="soft-iwarp")
        for reference, words in ((_POLLING, "TCP that polls"), (roce, "Soft RoCE")):
            yield Bar(f"iWARP {name} latency / {words}", "latency", side, reference, "at most")
        for reference, words in ((_ANY, "TCP"), (roce, "Soft RoCE")):
            yield Bar(f"iWARP {name} bandwidth / {words}", "bandwidth", side, reference, "at least")
    write, events = (dataclasses.replace(side, interconnect="soft-iwarp") for side in (_WRITE, _EVENTS))
    for reference, words in ((_SLEEPING, "TCP that sleeps"), (_EVENTS, "Soft RoCE")):
        yield Bar(f"iWARP SEND latency by events / {words}", "latency", events, reference, "at most")
    for reference, words in ((_ANY, "TCP"), (_WRITE, "Soft RoCE")):
        yield Bar(f"iWARP WRITE both ways / {words}", "bidirectional-bandwidth", write, reference, "at least")
        yield Bar(f"CPU time per MiB, iWARP WRITE / {words}", "cpu-use", write, reference, "at most")
    standard = Side("soft-iwarp", "send", "direct-1500")
    yield Bar("iWARP SEND over MTU 1500 / TCP", "bandwidth", standard, _ANY, "at least")
    roce = dataclasses.replace(_SEND, link=standard.link)
    yield Bar("iWARP SEND over MTU 1500 / Soft RoCE", "bandwidth", standard, roce, "at least")


BARS: tuple[Bar, ...] = (
    *_latencies(),
    *_bandwidths(),
    *_processors(),
    *_mpi(),
    *_gigabit(),
    *_beside_other_work(),
    *_columns(),
    *_shapes(),
    *_iwarp(),
)
