"""A ratio to the best of several references: what is the best, and how often the interval is right."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rocelab.stats import Better, Centre, Ratio, Series, SeriesKey, best_to_best, ratio, ratio_to_best

NOISE = 0.1


def test_with_one_reference_it_is_the_ratio() -> None:
    for count in (1, 2, 4, 5, 10):
        a = [2.0 + 0.01 * at for at in range(count)]
        b = [1.0 + 0.03 * at for at in range(count)]
        assert ratio_to_best(a, {"b": b}, better="lower", seed=3).ratio == ratio(a, b, seed=3)


@pytest.mark.parametrize(("better", "best"), [("higher", "high"), ("lower", "low")])
def test_the_best_is_the_one_that_is_best_by_its_centre(better: Better, best: str) -> None:
    references = {"low": [1.0, 1.1, 1.2], "high": [2.0, 2.1, 2.2], "between": [1.5, 1.6, 1.7]}
    found = ratio_to_best([3.0, 3.1, 3.2], references, better=better)
    assert found.best == best
    assert found.ratio.estimate == pytest.approx(3.1 / references[best][1])
    assert sum(found.shares.values()) == pytest.approx(1)
    assert max(found.shares, key=lambda name: found.shares[name]) == best


def test_a_reference_clearly_not_the_best_changes_nothing() -> None:
    subject, best = [10.0, 10.1, 10.2, 9.9, 9.8], [20.0, 20.1, 20.2, 19.9, 19.8]
    alone = ratio_to_best(subject, {"best": best}, better="higher").ratio
    among = ratio_to_best(subject, {"best": best, "far": [1.0, 1.1, 1.2, 0.9, 0.8]}, better="higher")
    assert (among.ratio.low, among.ratio.high) == (alone.low, alone.high)
    assert among.shares == {"best": 1.0, "far": 0.0}


def test_one_repetition_of_any_reference_allows_no_interval() -> None:
    found = ratio_to_best([1.0, 1.1], {"a": [2.0, 2.1], "b": [3.0]}, better="higher")
    assert (found.ratio.low, found.ratio.high, found.ratio.method) == (None, None, "none")
    assert found.best == "b"


@pytest.mark.parametrize("count", [3, 5])
def test_references_without_spread_have_an_interval_without_any(count: int) -> None:
    found = ratio_to_best([2.0] * count, {name: [1.0] * count for name in "abc"}, better="higher")
    assert (found.ratio.low, found.ratio.estimate, found.ratio.high) == pytest.approx((2.0, 2.0, 2.0))


@pytest.mark.parametrize("references", [{}, {"a": []}, {"a": [1.0], "b": [0.0]}])
def test_what_has_no_ratio_is_refused(references: dict[str, list[float]]) -> None:
    with pytest.raises(ValueError, match="ratio needs"):
        ratio_to_best([1.0], references, better="higher")


def _simulated(count: int, references: int, trials: int, better: Better, centre: Centre) -> list[Ratio]:
    """Ratios to the best of so many references that are all as good as the subject."""
    random = np.random.default_rng(100 * count + references)

    def repeated() -> list[float]:
        return [float(each) for each in np.exp(random.normal(0, NOISE, count))]

    return [
        ratio_to_best(
            repeated(), {name: repeated() for name in range(references)}, better=better, centre=centre, seed=trial
        ).ratio
        for trial in range(trials)
    ]


def _share(found: list[bool]) -> float:
    return sum(found) / len(found)


@pytest.mark.parametrize("centre", ["median", "mean"])
@pytest.mark.parametrize("references", [1, 2, 4])
@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_interval_covers_as_it_says_with_equal_references(count: int, references: int, centre: Centre) -> None:
    found = _simulated(count, references, 150, "higher", centre)
    covered = [each.low is not None and each.high is not None and each.low <= 1 <= each.high for each in found]
    assert 0.90 <= _share(covered) <= 1.0


@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_best_of_six_noisy_equals_leaves_the_subject_as_good(count: int) -> None:
    higher = _simulated(count, 6, 150, "higher", "mean")
    assert _share([each.high is not None and each.high < 1 for each in higher]) <= 0.08
    # The estimate itself is held against the luckiest of six: that is what the interval has to make
    # up for.
    assert math.exp(float(np.mean([math.log(each.estimate) for each in higher]))) < 0.97
    lower = _simulated(count, 6, 150, "lower", "mean")
    assert _share([each.low is not None and each.low > 1 for each in lower]) <= 0.08


def _series(*values: float, at: int = 64) -> Series:
    return Series(SeriesKey("direct", "network", "latency", "tcp", "x", "latency_us"), "us", "median", {at: values})


@pytest.mark.parametrize(("better", "best", "estimate"), [("higher", 1, 4.0), ("lower", 0, 1.0)])
def test_the_best_of_several_is_held_against_the_best_of_others(better: Better, best: int, estimate: float) -> None:
    subjects = [_series(2.0, 2.0, 2.0), _series(4.0, 4.0, 4.0), _series(1e6, at=128)]
    others = [_series(1.0, 1.0, 1.0), _series(0.5, 0.5, 0.5)] if better == "higher" else [_series(2.0, 2.0, 2.0)]
    found = best_to_best(subjects, others, 64, better=better)
    assert found is not None
    assert found[0] == best
    assert (found[1].ratio.estimate, found[1].ratio.low, found[1].ratio.high) == pytest.approx((estimate,) * 3)


def test_the_best_of_one_is_that_one() -> None:
    one, other = _series(2.0, 2.2, 2.1), _series(1.0, 1.2, 1.1)
    found = best_to_best([one], [other], 64, better="higher")
    assert found == (0, one.ratio_to_best([other], 64, better="higher"))
    assert best_to_best([one], [other], 128, better="higher") is None
    assert best_to_best([], [other], 64, better="higher") is None


def test_a_subject_measured_once_among_others_allows_no_interval() -> None:
    found = best_to_best([_series(2.0, 2.1), _series(3.0)], [_series(1.0, 1.1)], 64, better="higher")
    assert found is not None
    assert (found[0], found[1].ratio.low, found[1].ratio.high) == (1, None, None)


@pytest.mark.parametrize("better", ["higher", "lower"])
@pytest.mark.parametrize("count", [3, 5, 10])
def test_the_luckiest_of_four_noisy_equals_is_seldom_called_better(count: int, better: Better) -> None:
    random = np.random.default_rng(count)

    def repeated() -> Series:
        return _series(*(float(each) for each in np.exp(random.normal(0, NOISE, count))))

    found = [best_to_best([repeated() for _ in range(4)], [repeated()], 64, better=better) for _ in range(150)]
    ratios = [each[1].ratio for each in found if each is not None]
    assert len(ratios) == 150
    ahead = [each.low is not None and each.low > 1 for each in ratios]
    if better == "lower":
        ahead = [each.high is not None and each.high < 1 for each in ratios]
    assert _share(ahead) <= 0.06
    # The estimate is that of the luckiest: that is what the interval has to make up for.
    lucky = math.exp(float(np.mean([math.log(each.estimate) for each in ratios])))
    assert lucky > 1.02 if better == "higher" else lucky < 0.98
