"""Samples as series, the spread of repetitions, and comparisons with their confidence."""

from rocelab.stats import text
from rocelab.stats.centre import Centre, Spread, spread
from rocelab.stats.comparison import BestRatio, Better, Ratio, Side, ratio, ratio_to_best, significant
from rocelab.stats.resampling import CONFIDENCE
from rocelab.stats.series import NO_SIZE, SIMULATED, Series, SeriesKey, SeriesTable, best_to_best

__all__ = [
    "CONFIDENCE",
    "NO_SIZE",
    "SIMULATED",
    "BestRatio",
    "Better",
    "Centre",
    "Ratio",
    "Series",
    "SeriesKey",
    "SeriesTable",
    "Side",
    "Spread",
    "best_to_best",
    "ratio",
    "ratio_to_best",
    "significant",
    "spread",
    "text",
]
