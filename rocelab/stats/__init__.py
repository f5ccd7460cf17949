"""Samples as series, the spread of repetitions, and comparisons with their confidence."""

from rocelab.stats import text
from rocelab.stats.comparison import CONFIDENCE, Ratio, Side, Spread, ratio, significant, spread
from rocelab.stats.series import NO_SIZE, Series, SeriesKey, SeriesTable

__all__ = [
    "CONFIDENCE",
    "NO_SIZE",
    "Ratio",
    "Series",
    "SeriesKey",
    "SeriesTable",
    "Side",
    "Spread",
    "ratio",
    "significant",
    "spread",
    "text",
]
