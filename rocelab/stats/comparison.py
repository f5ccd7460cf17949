"""Ratios of repeated measurements with their confidence, and which of many ratios differ.

Few repetitions are the rule here (3 in the quick study, 10 in the papers), and times are skewed. Hence ranges that are
shown and not assumed, and ratios on a logarithmic scale, where twice and half are as far from one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, Literal, TypeVar

import numpy as np

from rocelab.stats.centre import CENTRES, Centre
from rocelab.stats.resampling import BOOTSTRAP_MIN_REPETITIONS, Values, least_gap, scipy_stats, welch_error

Method = Literal["bootstrap", "welch", "exact", "none"]
Better = Literal["lower", "higher"]
K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times ``numerator`` is ``denominator``, with the interval that holds it with 95 % confidence."""

    estimate: float
    """Ratio of the centres: of the medians, or of the means."""
    low: float | None
    """None where one repetition allows no statement; so is ``high``."""
    high: float | None
    p_value: float | None
    """Of Welch's t test on logarithms: how often chance alone would show such a difference. None of several."""
    method: Method
    """`exact`: of simulations, which have no spread; the interval is the ratio."""

    @property
    def side(self) -> Side:
        """On which side of one it is, as far as the confidence goes."""
        if self.low is None or self.high is None:
            return Side.UNCLEAR
        if self.low > 1:
            return Side.ABOVE
        return Side.BELOW if self.high < 1 else Side.UNCLEAR

    def inverse(self) -> Ratio:
        """The same comparison seen from the other side."""
        low = None if self.high is None else 1 / self.high
        high = None if self.low is None else 1 / self.low
        return Ratio(1 / self.estimate, low, high, self.p_value, self.method)


class Side(StrEnum):
    """Where a ratio stands."""

    ABOVE = "above"
    BELOW = "below"
    UNCLEAR = "unclear"


@dataclass(frozen=True, slots=True)
class BestRatio(Generic[K]):
    """How many times a subject is the best of several references."""

    ratio: Ratio
    """Subject over the best, with an interval that takes into account that the best was chosen."""
    best: K
    """The reference that is best by its centre."""
    shares: Mapping[K, float]
    """In which part of the draws each was the best; empty where nothing was drawn."""


def ratio(
    numerator: Sequence[float], denominator: Sequence[float], *, centre: Centre = "median", seed: int = 0
) -> Ratio:
    """Compares two sets of repetitions of a positive quantity, as :func:`ratio_to_best` does with one reference.

    From five repetitions on, the interval is a percentile bootstrap of the ratio of the centres; below, Welch's t
    interval on logarithms, which knows how little three values tell. Raises ValueError on values that are not
    positive, because no ratio is defined for them.
    """
    return ratio_to_best(numerator, {None: denominator}, better="higher", centre=centre, seed=seed).ratio


def ratio_to_best(
    subject: Sequence[float],
    references: Mapping[K, Sequence[float]],
    *,
    better: Better,
    centre: Centre = "median",
    seed: int = 0,
    subjects: int = 1,
) -> BestRatio[K]:
    """Compares repetitions of a positive quantity with those of the best of several references.

    Each reference that may be the best is one in the interval (see :mod:`rocelab.stats.resampling`), and so is that
    the subject was chosen from so many. Without a second repetition of each series there is none. Raises ValueError
    without values, and on values that are not positive.
    """
    if not subject or not references or not all(references.values()):
        raise ValueError("a ratio needs values on both sides")
    if min(*subject, *(min(values) for values in references.values())) <= 0:
        raise ValueError("a ratio needs positive values")
    sign = 1 if better == "higher" else -1
    centres = {name: float(CENTRES[centre](values)) for name, values in references.items()}
    best = max(centres, key=lambda name: sign * centres[name])
    estimate = float(CENTRES[centre](subject)) / centres[best]
    fewest = min(len(subject), *(len(values) for values in references.values()))
    if fewest < 2:
        return BestRatio(Ratio(estimate, None, None, None, "none"), best, {})
    is_bootstrap = fewest >= BOOTSTRAP_MIN_REPETITIONS
    mine, theirs = np.array(subject, float), [np.array(values, float) for values in references.values()]
    found = least_gap(mine, theirs, sign=sign, centre=centre, is_bootstrap=is_bootstrap, seed=seed, subjects=subjects)
    low, high = sorted((math.exp(sign * found.low), math.exp(sign * found.high)))
    # Resampled medians need not surround the median of all of an even number of values.
    low, high = min(low, estimate), max(high, estimate)
    p_value = _p_value(np.log(mine), np.log(theirs[0])) if len(theirs) == 1 else None
    whole = Ratio(estimate, low, high, p_value, "bootstrap" if is_bootstrap else "welch")
    return BestRatio(whole, best, dict(zip(references, found.shares, strict=True)))


def _p_value(a: Values, b: Values) -> float:
    error, freedom = welch_error(a, b)
    difference = float(np.mean(a) - np.mean(b))
    if error == 0:
        # Tools print few digits: repetitions can be equal to the last of them.
        return 1.0 if difference == 0 else 0.0
    return float(2 * scipy_stats().t.sf(abs(difference) / error, freedom))


def significant(p_values: Sequence[float | None], *, false_discovery_rate: float = 0.05) -> list[bool]:
    """Which of many comparisons differ, so that at most this share of those named is named by chance.

    Benjamini and Hochberg's procedure: of hundreds of sizes, some would otherwise always look different. None (no
    statement possible) is never significant.
    """
    known = [p for p in p_values if p is not None]
    if not known:
        return [False] * len(p_values)
    adjusted = iter(scipy_stats().false_discovery_control(known))
    return [p is not None and bool(next(adjusted) <= false_discovery_rate) for p in p_values]
