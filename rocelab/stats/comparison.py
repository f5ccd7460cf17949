"""Statistics of repeated measurements: the spread of one value, and the ratio of two with its confidence.

Few repetitions are the rule here (3 in the quick study, 10 in the papers), and times are skewed. Hence medians,
ranges that are shown and not assumed, and ratios on a logarithmic scale, where twice and half are as far from one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median
from typing import Any, Literal

import numpy as np

CONFIDENCE = 0.95
BOOTSTRAP_MIN_REPETITIONS = 5
"""Below, resampling knows too few distinct values: its intervals come out far too narrow."""
BOOTSTRAP_RESAMPLES = 4000

Method = Literal["bootstrap", "welch", "none"]


def _scipy_stats() -> Any:
    """scipy.stats, which takes a second to load: only who compares waits for it."""
    from scipy import stats  # noqa: PLC0415

    return stats


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of repeated measurements, and how far they reach."""

    count: int
    median: float
    low: float
    """The smallest of them."""
    high: float
    """The largest of them."""


def spread(values: Sequence[float]) -> Spread:
    """Sums up repetitions; raises ValueError where there are none."""
    if not values:
        raise ValueError("no values to sum up")
    return Spread(len(values), float(median(values)), float(min(values)), float(max(values)))


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times ``numerator`` is ``denominator``, with the interval that holds it with 95 % confidence."""

    estimate: float
    """Ratio of the medians."""
    low: float | None
    """None where one repetition allows no statement; so is ``high``."""
    high: float | None
    p_value: float | None
    """Of Welch's t test on logarithms: how often chance alone would show such a difference."""
    method: Method

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


def ratio(numerator: Sequence[float], denominator: Sequence[float], *, seed: int = 0) -> Ratio:
    """Compares two sets of repetitions of a positive quantity.

    From five repetitions on, the interval is a percentile bootstrap of the ratio of medians; below, Welch's t
    interval on logarithms, which knows how little three values tell. Raises ValueError on values that are not
    positive, because no ratio is defined for them.
    """
    if not numerator or not denominator:
        raise ValueError("a ratio needs values on both sides")
    if min(*numerator, *denominator) <= 0:
        raise ValueError("a ratio needs positive values")
    above, below = np.log(numerator), np.log(denominator)
    centre = math.log(median(numerator) / median(denominator))
    fewest = min(len(above), len(below))
    if fewest < 2:
        return Ratio(math.exp(centre), None, None, None, "none")
    error, freedom = _welch_error(above, below)
    difference = float(np.mean(above) - np.mean(below))
    p_value = _p_value(difference, error, freedom)
    if fewest < BOOTSTRAP_MIN_REPETITIONS:
        reach = float(_scipy_stats().t.ppf((1 + CONFIDENCE) / 2, freedom)) * error
        low, high = centre - reach, centre + reach
        return Ratio(math.exp(centre), math.exp(low), math.exp(high), p_value, "welch")
    low, high = _bootstrap(above, below, seed)
    # Resampled medians need not surround the median of all of an even number of values.
    return Ratio(math.exp(centre), math.exp(min(low, centre)), math.exp(max(high, centre)), p_value, "bootstrap")


_Values = np.ndarray[tuple[int], np.dtype[np.float64]]


def _welch_error(a: _Values, b: _Values) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom (Welch and Satterthwaite)."""
    share_a = float(np.var(a, ddof=1)) / len(a)
    share_b = float(np.var(b, ddof=1)) / len(b)
    total = share_a + share_b
    if total == 0:
        return 0.0, float(len(a) + len(b) - 2)
    return math.sqrt(total), total**2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))


def _p_value(difference: float, error: float, freedom: float) -> float:
    if error == 0:
        # Tools print few digits: repetitions can be equal to the last of them.
        return 1.0 if difference == 0 else 0.0
    return float(2 * _scipy_stats().t.sf(abs(difference) / error, freedom))


def _bootstrap(a: _Values, b: _Values, seed: int) -> tuple[float, float]:
    random = np.random.default_rng(seed)
    medians_a = np.median(random.choice(a, (BOOTSTRAP_RESAMPLES, len(a))), axis=1)
    medians_b = np.median(random.choice(b, (BOOTSTRAP_RESAMPLES, len(b))), axis=1)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(medians_a - medians_b, [tail, 1 - tail])
    return float(low), float(high)


def significant(p_values: Sequence[float | None], *, false_discovery_rate: float = 0.05) -> list[bool]:
    """Which of many comparisons differ, so that at most this share of those named is named by chance.

    Benjamini and Hochberg's procedure: of hundreds of sizes, some would otherwise always look different. None (no
    statement possible) is never significant.
    """
    known = [p for p in p_values if p is not None]
    if not known:
        return [False] * len(p_values)
    adjusted = iter(_scipy_stats().false_discovery_control(known))
    return [p is not None and bool(next(adjusted) <= false_discovery_rate) for p in p_values]
