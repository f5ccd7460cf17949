"""The numbers that rules are about, each with its interval: values of series, and how many times one is another."""

from __future__ import annotations

import dataclasses
import itertools
import math

from rocelab.claims.finding import Number
from rocelab.stats import NO_SIZE, Centre, Series


def value(series: Series, at: int, centre: Centre | None = None) -> Number:
    """The value of a series at a size or a number of nodes."""
    one = dataclasses.replace(series, values={at: (1.0,)}, is_exact=True)
    found = series.ratio_to_best([one], at, better="higher", centre=centre)
    if found is not None:
        return Number.of(found.ratio)
    # Where a value is 0, such as what is lost, there is no interval on a logarithmic scale, unless
    # nothing varies.
    spread = series.spread(at)
    is_sure = spread.low == spread.high and (spread.count > 1 or series.is_exact)
    return Number.exactly(spread.typical) if is_sure else Number(spread.typical, None, None)


def change(series: Series, at: int, before: int) -> Number | None:
    """How many times the value at one size is that at another."""
    ratio = series.only(at).ratio_to(series.only(before), NO_SIZE)
    return None if ratio is None else Number.of(ratio)


def growths(series: Series) -> dict[int, Number]:
    """How many times the value is that at the size before."""
    found = {at: change(series, at, before) for before, at in itertools.pairwise(series.sizes)}
    return {at: number for at, number in found.items() if number is not None}


def kinks(series: Series) -> dict[int, Number]:
    """How far the growth to a size differs from that to the sizes before and after, as a factor of at least 1."""
    found = {}
    sizes = series.sizes
    for first, before, at, after in zip(sizes, sizes[1:], sizes[2:], sizes[3:], strict=False):
        here = change(series, at, before)
        around = (change(series, before, first), change(series, after, at))
        if here is not None and around[0] is not None and around[1] is not None:
            found[at] = _either_way(here, around[0], around[1])
    return found


def _either_way(here: Number, before: Number, after: Number) -> Number:
    estimate = here.estimate / math.sqrt(before.estimate * after.estimate)
    ends = (here.low, here.high, before.low, before.high, after.low, after.high)
    factor = max(estimate, 1 / estimate)
    if any(end is None for end in ends):
        return Number(factor, None, None)
    here_low, here_high, before_low, before_high, after_low, after_high = (end or 0.0 for end in ends)
    low, high = here_low / math.sqrt(before_high * after_high), here_high / math.sqrt(before_low * after_low)
    return Number(factor, max(low, 1 / high, 1.0), max(high, 1 / low))


def linearities(series: Series) -> dict[int, Number]:
    """What a mesh moved over its number of nodes times what one node sends, which is taken from the smallest mesh."""
    smallest = series.sizes[0]
    found = {nodes: change(series, nodes, smallest) for nodes in series.sizes[1:]}
    shares = {nodes: number.scaled(smallest / nodes) for nodes, number in found.items() if number is not None}
    return {smallest: Number.exactly(1.0)} | shares


def linearity(series: Series) -> dict[int, float]:
    """The same without intervals."""
    return {nodes: number.estimate for nodes, number in linearities(series).items()}
