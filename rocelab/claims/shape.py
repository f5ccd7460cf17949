"""Rules about the shape of series: a ping-pong's bandwidth over the size, a mesh's throughput over its nodes."""

from __future__ import annotations

import math
from collections.abc import Mapping

from rocelab.claims.finding import AGREEMENT, Finding, Verdict, decide
from rocelab.claims.model import Degrades, Linear, LinkSide, Reaches, ShapeRule, Steady
from rocelab.results import RunInfo
from rocelab.stats import Series, SeriesKey, SeriesTable, text

#: Between "a part of it is left" and "nothing is lost" no verdict is given.
_UNHURT = 0.8
_PATH_MTUS_BYTES = (256, 512, 1024, 2048, 4096)
#: IPv4, UDP, BTH and ICRC, and what else a shaped cable counts.
_IN_IP_BYTES, _ETHERNET_BYTES = 20 + 8 + 12 + 4, 14


def judge_shape(rule: ShapeRule, info: RunInfo, table: SeriesTable) -> Finding:
    """Judges one rule; what the run lacks for it is said."""
    if isinstance(rule, Steady):
        return _judge_steady(rule, info, table)
    if isinstance(rule, Degrades):
        return _judge_degrades(rule, info, table)
    if isinstance(rule, Reaches):
        return _judge_reaches(rule, info, table)
    assert isinstance(rule, Linear)
    return _judge_linear(rule, table)


def _series(rule: ShapeRule, table: SeriesTable, side: LinkSide) -> Series | None:
    return table.get(SeriesKey(side.link, rule.level, rule.test, side.interconnect, side.variant, rule.metric))


def _missing(rule: ShapeRule, side: LinkSide) -> Finding:
    return Finding(
        Verdict.NOT_CHECKABLE, f"This run holds no {rule.test} samples of {side.name} on the link '{side.link}'."
    )


def _bandwidths(series: Series, info: RunInfo) -> dict[int, float]:
    """Size to 10^6 bit/s, from the time of a message in microseconds.

    No more than the narrowest cable carries of data: its burst lets a short message through faster.
    """
    link = info.link(series.key.link)
    rates = (link.rate_mbps, link.uplink_rate_mbps) if link is not None else ()
    rate_mbps = min((rate for rate in rates if rate is not None), default=math.inf)
    most_mbps = rate_mbps if link is None else rate_mbps * _data_share(link.mtu_bytes)
    return {size: min(size * 8 / summary.median, most_mbps) for size, summary in series.spreads()}


def _data_share(mtu_bytes: int) -> float:
    """The part of RoCEv2 packets that is data: of the largest path MTU (IBTA: 256 to 4096 bytes) that fits."""
    path_mtu_bytes = max((each for each in _PATH_MTUS_BYTES if each + _IN_IP_BYTES <= mtu_bytes), default=mtu_bytes)
    return path_mtu_bytes / (path_mtu_bytes + _IN_IP_BYTES + _ETHERNET_BYTES)


def _judge_steady(rule: Steady, info: RunInfo, table: SeriesTable) -> Finding:
    words, falls, reached = [], [], True
    for side in rule.sides:
        series = _series(rule, table, side)
        if series is None:
            return _missing(rule, side)
        found = {
            size: mbps
            for size, mbps in _bandwidths(series, info).items()
            if rule.sizes.from_bytes <= size <= rule.sizes.to_bytes
        }
        reached = reached and rule.sizes.from_bytes in found and rule.sizes.to_bytes in found
        low = _falls(found, rule.tolerance)
        falls += low
        largest = max(found, default=0)
        words.append(
            f"{side.name}: {text.quantity(found[largest], 'Mbps')} at {text.size(largest)}, "
            + (
                f"more than {100 * rule.tolerance:.0f} % below a smaller size at {text.size_list(low)}"
                if low
                else "never lower than before"
            )
            if found
            else f"{side.name}: nothing in this range"
        )
    summary = f"{'; '.join(words)}."
    if falls:
        return Finding(Verdict.CONTRADICTED, summary)
    if not reached:
        sizes = f"{text.size(rule.sizes.from_bytes)} and {text.size(rule.sizes.to_bytes)}"
        return Finding(Verdict.NOT_CHECKABLE, f"{summary} The rule needs {sizes}, and all between, to be measured.")
    return Finding(Verdict.REPRODUCED, summary)


def _falls(found: Mapping[int, float], tolerance: float) -> list[int]:
    """The sizes at which the bandwidth is clearly below its best at smaller sizes."""
    best, low = 0.0, []
    for size, mbps in sorted(found.items()):
        if mbps < best * (1 - tolerance):
            low.append(size)
        best = max(best, mbps)
    return low


def _judge_degrades(rule: Degrades, info: RunInfo, table: SeriesTable) -> Finding:
    subject, reference = _series(rule, table, rule.subject), _series(rule, table, rule.reference)
    for side, series in ((rule.subject, subject), (rule.reference, reference)):
        if series is None:
            return _missing(rule, side)
    assert subject is not None
    assert reference is not None
    here, there = _bandwidths(subject, info), _bandwidths(reference, info)
    parts = {size: here[size] / there[size] for size in here if size in there and size <= rule.to_bytes}
    above = {size: part for size, part in parts.items() if size > rule.above_bytes}
    below = {size: part for size, part in parts.items() if size <= rule.above_bytes}
    if not above or not below:
        return Finding(Verdict.NOT_CHECKABLE, f"No sizes on both sides of {rule.above_bytes} bytes were measured.")
    summary = (
        f"Of the bandwidth {rule.reference.name}, {rule.subject.name} has {_range(below)} up to {rule.above_bytes} "
        f"bytes and {_range(above)} beyond ({text.size_list(list(above))})."
    )
    hurt = sum(part <= rule.at_most for part in above.values())
    unhurt = sum(part >= _UNHURT for part in above.values())
    verdict = decide(hurt, unhurt, len(above))
    if verdict is Verdict.REPRODUCED and sum(part > rule.at_most for part in below.values()) < AGREEMENT * len(below):
        return Finding(Verdict.NOT_CHECKABLE, f"{summary} Small messages suffer as much: the size is not what does it.")
    return Finding(verdict, summary)


def _range(parts: Mapping[int, float]) -> str:
    low, high = min(parts.values()), max(parts.values())
    return f"{100 * low:.0f} to {100 * high:.0f} %"


def _judge_reaches(rule: Reaches, info: RunInfo, table: SeriesTable) -> Finding:
    series, link = _series(rule, table, rule.side), info.link(rule.side.link)
    if series is None:
        return _missing(rule, rule.side)
    if link is None or link.rate_mbps is None:
        return Finding(Verdict.NOT_CHECKABLE, f"The link '{rule.side.link}' has no rate to be held against.")
    found = {nodes: summary.median / nodes for nodes, summary in series.spreads() if nodes <= rule.to_nodes}
    if rule.to_nodes not in found:
        return Finding(Verdict.NOT_CHECKABLE, f"No mesh of {rule.to_nodes} servers was measured.")
    least = min(found, key=lambda nodes: found[nodes])
    summary = (
        f"{rule.side.name}: every server sends {text.quantity(min(found.values()), 'Mbps')} (of {least}) to "
        f"{text.quantity(max(found.values()), 'Mbps')} over its {text.quantity(link.rate_mbps, 'Mbps')}, "
        f"{100 * found[least] / link.rate_mbps:.0f} % or more "
        f"({text.listing([str(nodes) for nodes in found])} servers)."
    )
    reached = found[least] >= rule.at_least * link.rate_mbps
    return Finding(Verdict.REPRODUCED if reached else Verdict.CONTRADICTED, summary)


def _judge_linear(rule: Linear, table: SeriesTable) -> Finding:
    series = _series(rule, table, rule.side)
    if series is None:
        return _missing(rule, rule.side)
    shares = linearity(series)
    total = {nodes: summary.median for nodes, summary in series.spreads()}
    if rule.to_nodes not in total or len(total) < 3:
        return Finding(
            Verdict.NOT_CHECKABLE,
            f"The rule needs three numbers of servers or more, up to {rule.to_nodes}; there are {sorted(total)}.",
        )
    summary = (
        f"{rule.side.name}: {text.quantity(total[rule.to_nodes], 'Mbps')} in total with {rule.to_nodes} servers; of "
        f"the number of servers times the throughput of one, {100 * min(shares.values()):.0f} to "
        f"{100 * max(shares.values()):.0f} % were measured."
    )
    verdict = Verdict.REPRODUCED if min(shares.values()) >= rule.at_least else Verdict.CONTRADICTED
    if rule.bottleneck is None:
        return Finding(verdict, summary)
    narrow = _series(rule, table, rule.bottleneck)
    if narrow is None or rule.to_nodes not in narrow.values:
        return _missing(rule, rule.bottleneck)
    # Held against one server of the wide link: the narrow one may be as narrow for two servers as for sixteen.
    share = narrow.spread(rule.to_nodes).median / rule.to_nodes / (total[min(total)] / min(total))
    summary += f" {rule.bottleneck.name}: {100 * share:.0f} % with {rule.to_nodes} servers."
    if verdict is Verdict.REPRODUCED and share >= rule.at_least:
        verdict = Verdict.CONTRADICTED
    return Finding(verdict, summary)


def linearity(series: Series) -> dict[int, float]:
    """What a mesh moved over its number of nodes times what one node sends, which is taken from the smallest mesh."""
    totals = {nodes: summary.median for nodes, summary in series.spreads()}
    smallest = min(totals)
    return {nodes: total / nodes / (totals[smallest] / smallest) for nodes, total in totals.items()}
