"""How sure a gap between a subject and the best of several references is, when all of them are known from repetitions.

Everything here is on a logarithmic scale. A gap is subject less reference; that to the best reference is the least
gap, where more is better. Two mistakes are easy to make about it, and both are avoided as intersection bounds are
(Chernozhukov, Lee and Rosen, Econometrica 81, 2013, 667-737):

- The best of noisy references looks better than any of them is, and choosing the best again in each
  draw adds the same bias once more. So the upper end is one that all gaps stay below together in
  97.5 % of the draws, each gap by its own quantile, and the least of these counts. (Balanced
  simultaneous percentile intervals: Mandel and Betensky, Computational Statistics and Data Analysis
  52, 2008, 2158-2165.)
- The lower end needs no such thing: what is above the lower end of every gap is above that of the least
  (intersection-union test: Berger, Technometrics 24, 1982, 295-300).

Where the subject, too, was the best of several, it is the lower end that was chosen: each is as much surer as there
are subjects, so that all of them hold at once (Bonferroni). The upper end needs no such thing: the gap of the best is
below its own, and so below the highest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from rocelab.stats.centre import CENTRES, Centre

CONFIDENCE: Final = 0.95
BOOTSTRAP_MIN_REPETITIONS: Final = 5
"""Below, resampling knows too few distinct values: its intervals come out far too narrow."""
DRAWS: Final = 4000
_UPPER: Final = (1 + CONFIDENCE) / 2

Values = np.ndarray[tuple[int], np.dtype[np.float64]]
_Table = np.ndarray[tuple[int, int], np.dtype[np.float64]]
_Quantile = Callable[[float], float]


def scipy_stats() -> Any:
    """scipy.stats, which takes a second to load: only a comparison waits for it."""
    from scipy import stats  # noqa: PLC0415

    return stats


@dataclass(frozen=True, slots=True)
class LeastGap:
    """The interval of the least gap, and the part of the draws in which each reference was the best."""

    low: float
    high: float
    shares: tuple[float, ...]


def least_gap(
    subject: Values,
    references: Sequence[Values],
    *,
    sign: int,
    centre: Centre,
    is_bootstrap: bool,
    seed: int,
    subjects: int = 1,
) -> LeastGap:
    """The interval of the least of ``sign * (log subject - log reference)``, from two repetitions of each on.

    ``is_bootstrap``: all series are resampled. Otherwise each mean of logarithms is drawn from its t distribution; the
    draws tell how gaps depend on each other, and each gap has its Welch interval around the ratio of the centres.
    ``subjects``: of how many this is one, the best of which is chosen by who asks.
    """
    random = np.random.default_rng(seed)
    draw = _resampled if is_bootstrap else _from_t
    of_subject = draw(subject, centre, random)
    gaps: _Table = np.array([sign * (of_subject - draw(reference, centre, random)) for reference in references])
    best = np.argmin(gaps, axis=0)
    shares = tuple(float(np.mean(best == index)) for index in range(len(references)))
    # What was best in no draw is no candidate, and makes the others no less sure.
    candidates = [index for index, share in enumerate(shares) if share > 0]
    upper = _joint_level(gaps[candidates]) if len(candidates) > 1 else _UPPER
    quantiles = [
        _bootstrap_quantile(gaps[index], subject, references[index], centre)
        if is_bootstrap
        else _welch_quantile(subject, references[index], sign, centre)
        for index in candidates
    ]
    low = min(quantile((1 - _UPPER) / subjects) for quantile in quantiles)
    return LeastGap(low, min(quantile(upper) for quantile in quantiles), shares)


def _joint_level(gaps: _Table) -> float:
    """The level at which all gaps are below their quantiles at once, in 97.5 % of the draws."""
    varying = gaps[np.ptp(gaps, axis=1) > 0]
    if len(varying) < 2:
        return _UPPER
    ranks = scipy_stats().rankdata(varying, method="max", axis=1) / varying.shape[1]
    return float(np.quantile(np.max(ranks, axis=0), _UPPER))


def _resampled(values: Values, centre: Centre, random: np.random.Generator) -> Values:
    centres: Values = CENTRES[centre](random.choice(values, (DRAWS, len(values))), axis=1)
    return np.log(centres)


def _from_t(values: Values, centre: Centre, random: np.random.Generator) -> Values:
    del centre
    logs = np.log(values)
    error = float(np.std(logs, ddof=1)) / math.sqrt(len(logs))
    drawn: Values = float(np.mean(logs)) + error * random.standard_t(len(logs) - 1, DRAWS)
    return drawn


def _bootstrap_quantile(gaps: Values, a: Values, b: Values, centre: Centre) -> _Quantile:
    if centre != "mean":
        return lambda level: float(np.quantile(gaps, level))
    # Resampled means spread too little, by n/(n-1) and as if their spread was known: the expanded
    # percentile interval goes as much further out as t does (Hesterberg, The American Statistician
    # 69, 2015, 371-386).
    fewest, freedom = min(len(a), len(b)), welch_error(np.log(a), np.log(b))[1]
    widening = math.sqrt(fewest / (fewest - 1))
    distributions = scipy_stats()

    def quantile(level: float) -> float:
        expanded = distributions.norm.cdf(widening * distributions.t.ppf(level, freedom))
        return float(np.quantile(gaps, expanded))

    return quantile


def _welch_quantile(a: Values, b: Values, sign: int, centre: Centre) -> _Quantile:
    gap = sign * math.log(float(CENTRES[centre](a)) / float(CENTRES[centre](b)))
    error, freedom = welch_error(np.log(a), np.log(b))
    if error == 0:
        return lambda _: gap
    return lambda level: gap + float(scipy_stats().t.ppf(level, freedom)) * error


def welch_error(a: Values, b: Values) -> tuple[float, float]:
    """Standard error of the difference of means, and its degrees of freedom (Welch and Satterthwaite)."""
    share_a = float(np.var(a, ddof=1)) / len(a)
    share_b = float(np.var(b, ddof=1)) / len(b)
    total = share_a + share_b
    if total == 0:
        return 0.0, float(len(a) + len(b) - 2)
    return math.sqrt(total), total**2 / (share_a**2 / (len(a) - 1) + share_b**2 / (len(b) - 1))
