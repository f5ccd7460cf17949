"""What a rule comes to: a verdict, what was measured in words, and the numbers behind it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rocelab.stats import Ratio, Spread

AGREEMENT = 0.9
"""Share of the sizes that must be as claimed: in a range of 12, one may stand out."""
COVERAGE = 0.8
"""Share of the powers of two of a range that a run must have measured to be judged at all."""


class Verdict(StrEnum):
    """What a run says about a claim."""

    REPRODUCED = "reproduced"
    CONTRADICTED = "contradicted"
    NOT_CHECKABLE = "not checkable here"


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


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict with what was measured, in a sentence or two."""

    verdict: Verdict
    summary: str
    evidence: tuple[Evidence, ...] = ()


def decide(agreeing: int, opposing: int, count: int) -> Verdict:
    """What so many points for a claim, and so many against it, say about it."""
    if agreeing >= AGREEMENT * count:
        return Verdict.REPRODUCED
    # 1 - 0.9 is not exactly 0.1, and one size in ten must not tip the verdict.
    return Verdict.CONTRADICTED if opposing > (1 - AGREEMENT) * count + 1e-9 else Verdict.NOT_CHECKABLE
