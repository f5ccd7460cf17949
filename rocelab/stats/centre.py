"""Repetitions in one number: their centre, and how far they reach around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

Centre = Literal["mean", "median", "min", "max"]
"""What stands for all repetitions. A stall in two of ten counts in their mean, and is not seen in their median."""
CENTRES: Final[Mapping[Centre, Callable[..., Any]]] = {
    "mean": np.mean,
    "median": np.median,
    "min": np.min,
    "max": np.max,
}


@dataclass(frozen=True, slots=True)
class Spread:
    """Repeated measurements summed up, and how far they reach."""

    count: int
    median: float
    mean: float
    low: float
    """The smallest of them."""
    high: float
    """The largest of them."""
    centre: Centre = "median"
    """Which of these stands for all of them."""

    @property
    def typical(self) -> float:
        """What stands for all of them."""
        return {"mean": self.mean, "median": self.median, "min": self.low, "max": self.high}[self.centre]


def spread(values: Sequence[float], centre: Centre = "median") -> Spread:
    """Sums up repetitions; raises ValueError where there are none."""
    if not values:
        raise ValueError("no values to sum up")
    found = {each: float(of(values)) for each, of in CENTRES.items()}
    return Spread(len(values), found["median"], found["mean"], found["min"], found["max"], centre)
