"""Statistics against values worked out by hand or by another implementation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats as reference

from rocelab.stats import Centre, Side, Spread, ratio, significant, spread


def test_spread_of_known_values() -> None:
    assert spread([3.0, 1.0, 2.0]) == Spread(3, 2.0, 2.0, 1.0, 3.0)
    assert spread([4.0, 1.0, 1.0], "mean") == Spread(3, 1.0, 2.0, 1.0, 4.0, "mean")
    with pytest.raises(ValueError, match="no values"):
        spread([])


@pytest.mark.parametrize(("centre", "typical"), [("median", 1.0), ("mean", 2.0), ("min", 1.0), ("max", 4.0)])
def test_the_centre_says_what_stands_for_the_repetitions(centre: Centre, typical: float) -> None:
    assert spread([4.0, 1.0, 1.0], centre).typical == typical


def test_a_stall_in_two_of_ten_repetitions_counts_in_the_means() -> None:
    stalled, steady = [10.0] * 8 + [1.0] * 2, [10.0] * 10
    assert ratio(stalled, steady, centre="median").estimate == 1.0
    assert ratio(stalled, steady, centre="mean").estimate == pytest.approx(0.82)


def test_ratio_is_that_of_the_medians() -> None:
    assert ratio([4.0, 100.0, 1.0], [2.0, 2.1, 0.1]).estimate == pytest.approx(2.0)


def test_few_repetitions_give_the_welch_interval() -> None:
    a, b = [10.0, 11.0, 12.0], [5.0, 5.2, 5.1]
    result = ratio(a, b)
    expected = reference.ttest_ind(np.log(a), np.log(b), equal_var=False)
    interval = expected.confidence_interval(0.95)
    assert result.method == "welch"
    assert result.p_value == pytest.approx(expected.pvalue)
    assert result.low is not None
    assert result.high is not None
    assert math.log(result.high / result.low) == pytest.approx(interval.high - interval.low)
    assert result.low * result.high == pytest.approx(result.estimate**2)
    assert result.side is Side.ABOVE


def test_many_repetitions_give_a_bootstrap_that_covers_as_said() -> None:
    random = np.random.default_rng(1)
    hits = 0
    for seed in range(200):
        a = np.exp(random.normal(math.log(2), 0.1, 10)).tolist()
        b = np.exp(random.normal(0, 0.1, 10)).tolist()
        result = ratio(a, b, seed=seed)
        assert result.method == "bootstrap"
        assert result.low is not None
        assert result.high is not None
        assert result.low <= result.estimate <= result.high
        hits += result.low <= 2 <= result.high
    assert 0.88 <= hits / 200 <= 1.0


def test_the_interval_for_three_repetitions_covers_as_it_says() -> None:
    random = np.random.default_rng(2)
    hits = 0
    for _ in range(400):
        a = np.exp(random.normal(math.log(2), 0.1, 3)).tolist()
        b = np.exp(random.normal(0, 0.1, 3)).tolist()
        result = ratio(a, b)
        assert result.low is not None
        assert result.high is not None
        hits += result.low <= 2 <= result.high
    assert 0.9 <= hits / 400 <= 1.0


def test_the_same_seed_gives_the_same_interval() -> None:
    a, b = [1.0, 1.1, 1.2, 1.3, 1.5], [2.0, 2.1, 2.2, 2.3, 2.6]
    assert ratio(a, b, seed=3) == ratio(a, b, seed=3)


def test_one_repetition_allows_no_confidence() -> None:
    result = ratio([2.0], [1.0, 1.0, 1.1])
    assert (result.estimate, result.low, result.high, result.p_value) == (2.0, None, None, None)
    assert result.side is Side.UNCLEAR


@pytest.mark.parametrize(("a", "p_value", "side"), [([2.0] * 3, 0.0, Side.ABOVE), ([1.0] * 3, 1.0, Side.UNCLEAR)])
def test_repetitions_without_any_variance(a: list[float], p_value: float, side: Side) -> None:
    result = ratio(a, [1.0] * 3)
    assert result.p_value == p_value
    assert result.side is side


def test_inverse_swaps_the_sides() -> None:
    result = ratio([10.0, 11.0, 12.0], [5.0, 5.2, 5.1])
    assert result.inverse().inverse().estimate == pytest.approx(result.estimate)
    assert result.inverse().side is Side.BELOW


@pytest.mark.parametrize(("a", "b"), [([], [1.0]), ([1.0], []), ([0.0, 1.0], [1.0, 1.0]), ([-1.0], [1.0])])
def test_what_has_no_ratio_is_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="ratio needs"):
        ratio(a, b)


def test_significance_is_adjusted_for_the_number_of_comparisons() -> None:
    assert significant([0.04]) == [True]
    assert significant([0.04] + [0.9] * 19) == [False] * 20
    assert significant([0.001, None, 0.5]) == [True, False, False]
    assert significant([None]) == [False]
    assert significant([]) == []
