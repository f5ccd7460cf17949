"""What a rule comes to: a verdict, what was measured in words, and the numbers behind it. And the rule of all rules.

Whatever a claim says is held against a range by :func:`hold`, with the same confidence for and
against it. The whole 95 % interval has to be where the claim says, or all of it where the opposite
would be. So a claim and its opposite always get opposite verdicts, and what is measured too loosely
gets none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

from rocelab.stats import Ratio, Spread

AGREEMENT = 0.9
"""Share of the sizes that must be as claimed: in a range of 12, one may stand out."""
COVERAGE = 0.8
"""Share of the powers of two of a range that a run must have measured to be judged at all."""
MIN_REPETITIONS: Final = 2
"""From so many on, repetitions tell an interval. A simulation, which has no spread, needs one."""


class Verdict(StrEnum):
    """What a run says about a claim, or about a part of one."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    NOT_CHECKABLE = "not checkable here"
    ANSWERED = "answered"
    """Of a question, which nothing can reproduce or contradict."""

    @property
    def of_part(self) -> str:
        """The same of a part of a claim."""
        return "undecided" if self is Verdict.NOT_CHECKABLE else self.value


@dataclass(frozen=True, slots=True)
class Evidence:
    """One size of a comparison, in the order subject, reference, and how the rule counts it."""

    size_bytes: int
    subject: Spread
    reference: Spread
    unit: str
    ratio: Ratio
    """Subject over reference, as measured."""
    counts_as: str
    reference_name: str
    """What exactly the subject was held against at this size: of several references, the best."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with what was measured, in a sentence or two."""

    verdict: Verdict
    summary: str
    evidence: tuple[Evidence, ...] = ()


@dataclass(frozen=True, slots=True)
class Range:
    """Where a number is to lie, both ends included."""

    at_least: float = -math.inf
    at_most: float = math.inf

    def has(self, low: float, high: float) -> bool:
        """Whether a whole interval is in it."""
        return self.at_least <= low and high <= self.at_most

    def is_beside(self, low: float, high: float) -> bool:
        """Whether a whole interval is outside."""
        return high < self.at_least or low > self.at_most


ABOVE_ONE: Final = Range(at_least=math.nextafter(1, 2))
BELOW_ONE: Final = Range(at_most=math.nextafter(1, 0))


@dataclass(frozen=True, slots=True)
class Number:
    """A measured or simulated number with its 95 % interval, which is the number itself where there is no spread."""

    estimate: float
    low: float | None
    """None where a single repetition allows no statement; so is ``high``."""
    high: float | None

    @classmethod
    def of(cls, ratio: Ratio) -> Self:
        """The number that a ratio is."""
        return cls(ratio.estimate, ratio.low, ratio.high)

    @classmethod
    def exactly(cls, value: float) -> Self:
        """A number without spread."""
        return cls(value, value, value)

    def mapped(self, through: Callable[[float], float]) -> Number:
        """The number that a function, which only rises or only falls, makes of it."""
        estimate = through(self.estimate)
        if self.low is None or self.high is None:
            return Number(estimate, None, None)
        ends = through(self.low), through(self.high)
        return Number(estimate, min(ends), max(ends))

    def scaled(self, factor: float) -> Number:
        """So many times the number."""
        return self.mapped(lambda value: value * factor)

    def words(self, shown: Callable[[float], str]) -> str:
        """The number and, if it has any width, its interval: ``1.9 (1.8 to 2.0)``."""
        if self.low is None or self.high is None:
            return f"{shown(self.estimate)} (no interval)"
        if self.low == self.high:
            return shown(self.estimate)
        return f"{shown(self.estimate)} ({shown(self.low)} to {shown(self.high)})"


def combined(numbers: Iterable[Number], by: Callable[[Iterable[float]], float]) -> Number:
    """The mean, the least or the most of numbers: by that of their ends."""
    several = list(numbers)
    lows = [each.low for each in several if each.low is not None]
    highs = [each.high for each in several if each.high is not None]
    known = len(lows) == len(highs) == len(several)
    return Number(by(each.estimate for each in several), by(lows) if known else None, by(highs) if known else None)


def hold(number: Number, claimed: Range, opposed: Range | None = None) -> Verdict:
    """Reproduced if the whole interval is where the claim says, contradicted if all of it is where the opposite is.

    The opposite is everything outside, unless a claim leaves something in between (``opposed``).
    """
    if number.low is None or number.high is None:
        return Verdict.NOT_CHECKABLE
    if claimed.has(number.low, number.high):
        return Verdict.REPRODUCED
    beside = claimed.is_beside(number.low, number.high)
    against = beside if opposed is None else opposed.has(number.low, number.high)
    return Verdict.CONTRADICTED if against else Verdict.NOT_CHECKABLE


def decide(verdicts: Iterable[Verdict]) -> Verdict:
    """What points say together, of which one in ten may stand out."""
    points = list(verdicts)
    if points.count(Verdict.REPRODUCED) >= AGREEMENT * len(points):
        return Verdict.REPRODUCED
    # 1 - 0.9 is not exactly 0.1, and one size in ten must not tip the verdict.
    too_many = points.count(Verdict.CONTRADICTED) > (1 - AGREEMENT) * len(points) + 1e-9
    return Verdict.CONTRADICTED if too_many else Verdict.NOT_CHECKABLE


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """What parts say together, every one of which has to be as claimed."""
    parts = set(verdicts)
    if Verdict.CONTRADICTED in parts:
        return Verdict.CONTRADICTED
    # All are questions, or none.
    return parts.pop() if parts in ({Verdict.REPRODUCED}, {Verdict.ANSWERED}) else Verdict.NOT_CHECKABLE
