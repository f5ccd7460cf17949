"""By how many percent one network is better than another, as figures that sum a source up have it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rocelab.claims.finding import Number, combined
from rocelab.claims.gains import percent_of
from rocelab.claims.model import Improvement
from rocelab.claims.parts import number_of
from rocelab.claims.sides import Sides
from rocelab.results import Sample
from rocelab.stats import SeriesTable

_CLOUD: Final = "cloud"


def improvements(bars: Sequence[Improvement], samples: Sequence[Sample]) -> list[Number | None]:
    """What each bar is in these samples, in percent; None where they do not have it."""
    sides = Sides(SeriesTable(samples))
    return [_improvement(bar, sides) for bar in bars]


def _improvement(bar: Improvement, sides: Sides) -> Number | None:
    if bar.gain is not None:
        found = percent_of(bar.gain, _CLOUD, sides)
        return None if isinstance(found, str) else found
    numbers = []
    for part in bar.parts:
        number = number_of(part, sides)
        if isinstance(number, str):
            return None
        # A ratio is so many times as good; a reduction is in percent as it is.
        numbers.append(number.mapped(lambda times: 100 * (times - 1)) if part.how == "ratio" else number)
    return combined(numbers, max)
