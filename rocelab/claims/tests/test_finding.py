"""The rule of all rules: the same confidence for a claim as against it."""

from __future__ import annotations

import math

import pytest

from rocelab.claims.finding import Number, Range, Verdict, combined, decide, hold, together

REPRODUCED, CONTRADICTED, OPEN = Verdict.REPRODUCED, Verdict.CONTRADICTED, Verdict.NOT_CHECKABLE


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.0, 2.0, REPRODUCED), (1.5, 1.5, REPRODUCED), (0.9, 1.5, OPEN), (0.5, 2.5, OPEN), (2.1, 3.0, CONTRADICTED)],
)
def test_the_whole_interval_decides(low: float, high: float, verdict: Verdict) -> None:
    assert hold(Number(1.5, low, high), Range(1.0, 2.0)) is verdict


def test_a_number_without_an_interval_decides_nothing() -> None:
    assert hold(Number(1.5, None, None), Range(1.0, 2.0)) is OPEN


@pytest.mark.parametrize("interval", [(0.2, 0.4), (0.9, 1.1), (1.2, 3.0), (0.5, 5.0)])
def test_a_claim_and_its_opposite_get_opposite_verdicts(interval: tuple[float, float]) -> None:
    number = Number(sum(interval) / 2, *interval)
    opposite = {REPRODUCED: CONTRADICTED, CONTRADICTED: REPRODUCED, OPEN: OPEN}
    above, below = Range(at_least=1.0), Range(at_most=math.nextafter(1.0, 0.0))
    assert hold(number, below) is opposite[hold(number, above)]


def test_what_lies_between_a_claim_and_its_opposite_is_left_open() -> None:
    claimed, opposed = Range(at_most=0.5), Range(at_least=0.8)
    assert [hold(Number.exactly(each), claimed, opposed) for each in (0.5, 0.6, 0.8)] == [
        REPRODUCED,
        OPEN,
        CONTRADICTED,
    ]


def test_of_ten_points_one_may_stand_out() -> None:
    assert decide([REPRODUCED] * 9 + [CONTRADICTED]) is REPRODUCED
    assert decide([REPRODUCED] * 8 + [CONTRADICTED] * 2) is CONTRADICTED
    assert decide([REPRODUCED] * 8 + [OPEN, CONTRADICTED]) is OPEN


def test_every_part_counts() -> None:
    assert together([REPRODUCED, REPRODUCED]) is REPRODUCED
    assert together([REPRODUCED, OPEN]) is OPEN
    assert together([OPEN, CONTRADICTED, REPRODUCED]) is CONTRADICTED


def test_a_falling_function_swaps_the_ends() -> None:
    assert Number(2.0, 1.0, 4.0).mapped(lambda each: 1 / each) == Number(0.5, 0.25, 1.0)


def test_the_most_of_numbers_has_the_most_of_their_ends() -> None:
    assert combined([Number(1.0, 0.5, 4.0), Number(2.0, 1.5, 3.0)], max) == Number(2.0, 1.5, 4.0)
    assert combined([Number(1.0, 0.5, 4.0), Number(2.0, None, None)], max) == Number(2.0, None, None)
