"""Numbers of series, with their intervals."""

from __future__ import annotations

import pytest

from rocelab.claims.finding import Number
from rocelab.claims.numbers import change, growths, linearities, value
from rocelab.stats import Series, SeriesKey

KEY = SeriesKey("l", "network", "mesh", "a", "v", "throughput_mbps")


def series(values: dict[int, tuple[float, ...]], *, is_exact: bool = False) -> Series:
    return Series(KEY, "Mbps", "mean", values, is_exact)


def test_a_value_has_the_interval_of_its_mean() -> None:
    found = value(series({2: (9.0, 10.0, 11.0)}), 2)
    assert found.estimate == pytest.approx(10.0)
    assert found.low is not None
    assert found.high is not None
    # t with 2 degrees of freedom, 4.30, times 10 % over the root of 3.
    assert (found.low, found.high) == pytest.approx((7.8, 12.8), abs=0.1)


@pytest.mark.parametrize(
    ("values", "is_exact", "number"),
    [
        ((0.0, 0.0), False, Number.exactly(0.0)),
        ((0.0,), True, Number.exactly(0.0)),
        ((0.0,), False, Number(0.0, None, None)),
        ((0.0, 2.0), False, Number(1.0, None, None)),
    ],
)
def test_nothing_lost_is_sure_where_it_never_varies(values: tuple[float, ...], is_exact: bool, number: Number) -> None:
    assert value(series({2: values}, is_exact=is_exact), 2) == number


def test_a_change_is_that_from_one_size_to_another() -> None:
    exact = series({2: (20.0,), 4: (38.0,), 8: (64.0,)}, is_exact=True)
    assert change(exact, 4, 2) == Number.exactly(1.9)
    assert {at: number.estimate for at, number in growths(exact).items()} == pytest.approx({4: 1.9, 8: 64 / 38})
    shares = {nodes: number.estimate for nodes, number in linearities(exact).items()}
    assert shares == pytest.approx({2: 1.0, 4: 0.95, 8: 0.8})
