"""Rules about the shape of series: a ping-pong's bandwidth over the size, a mesh's throughput over its nodes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

from rocelab.claims.finding import AGREEMENT, Finding, Number, Range, Verdict, decide, hold, together
from rocelab.claims.numbers import linearities, value
from rocelab.claims.rules import Degrades, Linear, LinkSide, Reaches, ShapeRule, Steady
from rocelab.claims.sides import Place, Sides
from rocelab.results import RunInfo
from rocelab.stats import NO_SIZE, Series, text

#: Between "a part of it is left" and "nothing is lost" no verdict is given.
_UNHURT = Range(at_least=0.8)
_PATH_MTUS_BYTES = (256, 512, 1024, 2048, 4096)
#: IPv4, UDP, BTH and ICRC, and what else a shaped cable counts.
_IN_IP_BYTES, _ETHERNET_BYTES = 20 + 8 + 12 + 4, 14


def judge_shape(rule: ShapeRule, info: RunInfo, sides: Sides) -> Finding:
    """Judges one rule; what the run lacks for it is said."""
    if isinstance(rule, Steady):
        return _judge_steady(rule, info, sides)
    if isinstance(rule, Degrades):
        return _judge_degrades(rule, info, sides)
    if isinstance(rule, Reaches):
        return _judge_reaches(rule, info, sides)
    assert isinstance(rule, Linear)
    return _judge_linear(rule, sides)


def _series(rule: ShapeRule, sides: Sides, side: LinkSide) -> Series | None:
    return sides.first(side, Place(side.link, rule.level, rule.test, rule.metric, (2, 2)))


def _missing(rule: ShapeRule, side: LinkSide) -> Finding:
    return Finding(
        Verdict.NOT_CHECKABLE, f"This run holds no {rule.test} samples of {side.name} on the link '{side.link}'."
    )


def _us_per_byte(series: Series, info: RunInfo) -> Series:
    """The time of a message in microseconds over its size, which is 8 over the bandwidth in 10^6 bit/s.

    No less than the narrowest cable takes for data: its burst lets a short message through faster.
    """
    link = info.link(series.key.link)
    rates = (link.rate_mbps, link.uplink_rate_mbps) if link is not None else ()
    rate_mbps = min((rate for rate in rates if rate is not None), default=math.inf)
    least = 8 / (rate_mbps if link is None else rate_mbps * _data_share(link.mtu_bytes))
    values = {size: tuple(max(each / size, least) for each in found) for size, found in series.values.items()}
    return dataclasses.replace(series, unit="us/B", values=values)


def _data_share(mtu_bytes: int) -> float:
    """The part of RoCEv2 packets that is data: of the largest path MTU (IBTA: 256 to 4096 bytes) that fits."""
    path_mtu_bytes = max((each for each in _PATH_MTUS_BYTES if each + _IN_IP_BYTES <= mtu_bytes), default=mtu_bytes)
    return path_mtu_bytes / (path_mtu_bytes + _IN_IP_BYTES + _ETHERNET_BYTES)


def _judge_steady(rule: Steady, info: RunInfo, sides: Sides) -> Finding:
    words: list[str] = []
    verdicts: list[Verdict] = []
    is_whole = True
    for side in rule.sides:
        series = _series(rule, sides, side)
        if series is None:
            return _missing(rule, side)
        costs = _us_per_byte(series, info)
        sizes = [size for size in costs.sizes if rule.sizes.from_bytes <= size <= rule.sizes.to_bytes]
        is_whole = is_whole and rule.sizes.from_bytes in sizes and rule.sizes.to_bytes in sizes
        parts = _of_best_before(costs, sizes)
        held = {size: hold(part, Range(at_least=1 - rule.tolerance)) for size, part in parts.items()}
        verdicts += held.values()
        said = _steady_words(costs, parts, held, rule.tolerance)
        if rule.level_from_bytes in sizes:
            levels = _levels(costs, [size for size in sizes if size >= rule.level_from_bytes])
            level = Range(1 - rule.tolerance, 1 + rule.tolerance)
            verdicts += [hold(number, level) for number in levels.values()]
            said += f", {_range(levels)} of that at {text.size(rule.level_from_bytes)} from there on" if levels else ""
        words.append(f"{side.name}: {said}")
    summary = f"{'; '.join(words)}."
    verdict = together(verdicts)
    if verdict is not Verdict.CONTRADICTED and not is_whole:
        sizes_needed = f"{text.size(rule.sizes.from_bytes)} and {text.size(rule.sizes.to_bytes)}"
        needed = f"The rule needs {sizes_needed}, and all between, to be measured."
        return Finding(Verdict.NOT_CHECKABLE, f"{summary} {needed}")
    return Finding(verdict, summary)


def _of_best_before(costs: Series, sizes: list[int]) -> dict[int, Number]:
    """Which part of the best bandwidth at smaller sizes each size has."""
    found: dict[int, Number] = {}
    for index, size in enumerate(sizes[1:], 1):
        smaller = [costs.only(each) for each in sizes[:index]]
        best = costs.only(size).ratio_to_best(smaller, NO_SIZE, better="lower")
        if best is not None:
            found[size] = Number.of(best.ratio.inverse())
    return found


def _levels(costs: Series, sizes: list[int]) -> dict[int, Number]:
    """Which part of the bandwidth at the first size each of the others has."""
    first = costs.only(sizes[0])
    ratios = {size: costs.only(size).ratio_to(first, NO_SIZE) for size in sizes[1:]}
    return {size: Number.of(ratio.inverse()) for size, ratio in ratios.items() if ratio is not None}


def _steady_words(costs: Series, parts: Mapping[int, Number], held: Mapping[int, Verdict], tolerance: float) -> str:
    if not parts:
        return "nothing in this range"
    largest = max(parts)
    words = f"{text.quantity(8 / costs.spread(largest).typical, 'Mbps')} at {text.size(largest)}, "
    low = [size for size, verdict in held.items() if verdict is Verdict.CONTRADICTED]
    if low:
        words += f"more than {100 * tolerance:.0f} % below a smaller size at {text.size_list(low)}, "
    worst = min(parts, key=lambda size: parts[size].estimate)
    return f"{words}at worst {_part(parts[worst])} of the best before, at {text.size(worst)}"


def _part(number: Number) -> str:
    return f"{number.words(lambda each: f'{100 * each:.0f}')} %"


def _judge_degrades(rule: Degrades, info: RunInfo, sides: Sides) -> Finding:
    subject, reference = _series(rule, sides, rule.subject), _series(rule, sides, rule.reference)
    for side, series in ((rule.subject, subject), (rule.reference, reference)):
        if series is None:
            return _missing(rule, side)
    assert subject is not None
    assert reference is not None
    here, there = _us_per_byte(subject, info), _us_per_byte(reference, info)
    ratios = {size: here.ratio_to(there, size) for size in here.sizes if size <= rule.to_bytes}
    parts = {size: Number.of(ratio.inverse()) for size, ratio in ratios.items() if ratio is not None}
    above = {size: part for size, part in parts.items() if size > rule.above_bytes}
    below = {size: part for size, part in parts.items() if size <= rule.above_bytes}
    if not above or not below:
        return Finding(Verdict.NOT_CHECKABLE, f"No sizes on both sides of {rule.above_bytes} bytes were measured.")
    summary = (
        f"Of the bandwidth {rule.reference.name}, {rule.subject.name} has {_range(below)} up to {rule.above_bytes} "
        f"bytes and {_range(above)} beyond ({text.size_list(list(above))})."
    )
    claimed = Range(at_most=rule.at_most)
    verdict = decide(hold(part, claimed, _UNHURT) for part in above.values())
    unhurt = sum(hold(part, claimed) is Verdict.CONTRADICTED for part in below.values())
    if verdict is Verdict.REPRODUCED and unhurt < AGREEMENT * len(below):
        return Finding(
            Verdict.NOT_CHECKABLE, f"{summary} Small messages may suffer as much: the size need not be what does it."
        )
    return Finding(verdict, summary)


def _range(parts: Mapping[int, Number]) -> str:
    least, most = (choose(parts.values(), key=lambda part: part.estimate) for choose in (min, max))
    return f"{_part(least)[:-2]} to {_part(most)}"


def _judge_reaches(rule: Reaches, info: RunInfo, sides: Sides) -> Finding:
    series, link = _series(rule, sides, rule.side), info.link(rule.side.link)
    if series is None:
        return _missing(rule, rule.side)
    if link is None or link.rate_mbps is None:
        return Finding(Verdict.NOT_CHECKABLE, f"The link '{rule.side.link}' has no rate to be held against.")
    rate_mbps = link.rate_mbps
    found = {nodes: value(series, nodes).scaled(1 / nodes) for nodes in series.sizes if nodes <= rule.to_nodes}
    if rule.to_nodes not in found:
        return Finding(Verdict.NOT_CHECKABLE, f"No mesh of {rule.to_nodes} servers was measured.")
    least, most = (choose(found, key=lambda nodes: found[nodes].estimate) for choose in (min, max))
    part = found[least].scaled(1 / rate_mbps)
    summary = (
        f"{rule.side.name}: every server sends {_mbps(found[least])} (of {least}) to {_mbps(found[most])} over its "
        f"{text.quantity(rate_mbps, 'Mbps')}, {_part(part)} or more "
        f"({text.listing([str(nodes) for nodes in found])} servers)."
    )
    claimed = Range(at_least=rule.at_least * rate_mbps)
    return Finding(together(hold(number, claimed) for number in found.values()), summary)


def _mbps(number: Number) -> str:
    return number.words(lambda each: text.quantity(each, "Mbps"))


def _judge_linear(rule: Linear, sides: Sides) -> Finding:
    series = _series(rule, sides, rule.side)
    if series is None:
        return _missing(rule, rule.side)
    if rule.to_nodes not in series.values or len(series.values) < 3:
        return Finding(
            Verdict.NOT_CHECKABLE,
            f"The rule needs three numbers of servers or more, up to {rule.to_nodes}; there are {series.sizes}.",
        )
    shares = linearities(series)
    summary = (
        f"{rule.side.name}: {_mbps(value(series, rule.to_nodes))} in total with {rule.to_nodes} servers; of the number "
        f"of servers times the throughput of one, {_range(shares)} were measured."
    )
    claimed = Range(at_least=rule.at_least)
    verdict = together(hold(share, claimed) for share in shares.values())
    if rule.bottleneck is None:
        return Finding(verdict, summary)
    narrow = _series(rule, sides, rule.bottleneck)
    # Held against one server of the wide link: the narrow one may be as narrow for two servers as
    # for sixteen.
    smallest = series.sizes[0]
    ratio = (
        narrow.only(rule.to_nodes).ratio_to(series.only(smallest), NO_SIZE)
        if narrow is not None and rule.to_nodes in narrow.values
        else None
    )
    if ratio is None:
        return _missing(rule, rule.bottleneck)
    share = Number.of(ratio).scaled(smallest / rule.to_nodes)
    summary += f" {rule.bottleneck.name}: {_part(share)} with {rule.to_nodes} servers."
    behind = hold(share, Range(at_most=math.nextafter(rule.at_least, 0)))
    return Finding(together([verdict, behind]), summary)
