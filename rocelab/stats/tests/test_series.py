"""Samples become series: by repetition, typical values first, failures left out."""

from __future__ import annotations

from typing import Any

import pytest

from rocelab.results import Sample
from rocelab.stats import NO_SIZE, SeriesKey, SeriesTable, Spread

KEY = SeriesKey("direct", "network", "latency", "tcp", "blocking", "latency_us")


def sample(value: float | None, *, size: int | None = 64, repetition: int = 0, **changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "study": "s", "run": "r", "fabric": "f", "link": "direct", "interconnect": "tcp", "level": "network",
        "test": "latency", "variant": "blocking", "size_bytes": size, "params": {}, "metric": "latency_us",
        "unit": "us", "statistic": "median", "value": value, "repetition": repetition, "ok": value is not None,
        "error": None if value is not None else "hung", "tool": "t", "tool_version": "1", "command": "t",
        "started_at": "2026-01-01T00:00:00Z", "duration_s": 1.0, "log": None, "order": 0,
    }  # fmt: skip
    return Sample(**(fields | changes))


def test_repetitions_come_by_number_and_sizes_ascending() -> None:
    table = SeriesTable([sample(3.0, repetition=1), sample(9.0, size=1), sample(2.0, repetition=0)])
    series = table.get(KEY)
    assert series is not None
    assert series.values == {1: (9.0,), 64: (2.0, 3.0)}
    assert series.sizes == [1, 64]
    assert series.spread(64) == Spread(2, 2.5, 2.5, 2.0, 3.0)
    assert series.unit == "us"


def test_failures_are_left_out() -> None:
    table = SeriesTable([sample(None)])
    assert list(table) == []
    assert table.get(KEY) is None


def test_samples_without_a_size_are_a_series_too() -> None:
    series = SeriesTable([sample(1.0, size=None), sample(2.0, size=None, repetition=1)]).get(KEY)
    assert series is not None
    assert series.is_sizeless
    assert series.values == {NO_SIZE: (1.0, 2.0)}
    sized = SeriesTable([sample(1.0)]).get(KEY)
    assert sized is not None
    assert not sized.is_sizeless


def test_the_median_stands_for_a_run_before_any_percentile() -> None:
    table = SeriesTable([sample(9.0, statistic="p99"), sample(2.0), sample(3.0, statistic="mean")])
    series, tail = table.get(KEY), table.statistic(KEY, "p99")
    assert series is not None
    assert (series.statistic, series.values[64]) == ("median", (2.0,))
    assert tail is not None
    assert tail.values[64] == (9.0,)
    assert table.statistic(KEY, "p50") is None


@pytest.mark.parametrize("extreme", ["p99", "p99.9", "max", "min", "stdev"])
def test_an_unnamed_statistic_still_comes_before_an_extreme(extreme: str) -> None:
    series = SeriesTable([sample(9.0, statistic=extreme), sample(1.0, statistic="harmonic-mean")]).get(KEY)
    assert series is not None
    assert series.statistic == "harmonic-mean"


def test_ratio_needs_positive_values_on_both_sides() -> None:
    table = SeriesTable(
        [sample(2.0), sample(1.0, variant="busy-poll"), sample(1.0, size=1), sample(0.0, size=1, variant="busy-poll")]
    )
    blocking, busy = table.get(KEY), table.get(KEY._replace(variant="busy-poll"))
    assert blocking is not None
    assert busy is not None
    ratio = blocking.ratio_to(busy, 64)
    assert ratio is not None
    assert ratio.estimate == 2.0
    assert blocking.ratio_to(busy, 1) is None
    assert blocking.ratio_to(busy, 4096) is None


MEANS_AND_MEDIANS = [
    ("network", "latency_us", "median"),
    ("network", "bandwidth_mbps", "mean"),
    ("mpi", "latency_us", "mean"),
    ("mpi", "bandwidth_mbps", "mean"),
    ("cloud", "read_latency_us", "mean"),
]


@pytest.mark.parametrize(("level", "metric", "taken"), MEANS_AND_MEDIANS)
def test_level_and_metric_choose_the_statistic_and_keep_others(level: str, metric: str, taken: str) -> None:
    key = KEY._replace(level=level, metric=metric)
    values = {"median": 1.0, "mean": 2.0, "p99": 3.0}
    table = SeriesTable([sample(value, level=level, metric=metric, statistic=name) for name, value in values.items()])
    series = table.get(key)
    assert series is not None
    assert (series.statistic, series.centre) == (taken, taken)
    others = {name: table.statistic(key, name) for name in values}
    assert {name: found.values[64] for name, found in others.items() if found is not None} == {
        name: (value,) for name, value in values.items()
    }


def test_a_simulated_value_is_its_own_interval() -> None:
    virtual = [
        sample(value, fabric="virtual", variant=variant) for variant, value in (("blocking", 3.0), ("busy-poll", 2.0))
    ]
    table = SeriesTable(virtual)
    blocking, busy = table.get(KEY), table.get(KEY._replace(variant="busy-poll"))
    assert blocking is not None
    assert busy is not None
    ratio = blocking.ratio_to(busy, 64)
    assert ratio is not None
    assert (ratio.low, ratio.estimate, ratio.high, ratio.method) == (1.5, 1.5, 1.5, "exact")


def test_beside_a_simulated_value_only_the_measured_one_spreads() -> None:
    measured = [sample(value, repetition=at, variant="busy-poll") for at, value in enumerate((2.0, 2.1, 1.9))]
    table = SeriesTable([sample(3.0, fabric="virtual"), *measured])
    simulated, busy = table.get(KEY), table.get(KEY._replace(variant="busy-poll"))
    assert simulated is not None
    assert busy is not None
    ratio = simulated.ratio_to(busy, 64)
    assert ratio is not None
    assert ratio.low is not None
    assert ratio.high is not None
    assert 1.2 < ratio.low < 1.5 < ratio.high < 1.8
    assert ratio.method == "welch"


def test_the_best_of_others_is_one_of_those_that_have_the_size() -> None:
    names = {"a": 3.0, "b": 2.0, "c": 1.0}
    samples = [
        sample(value + 0.01 * at, variant=name, repetition=at) for name, value in names.items() for at in range(3)
    ]
    table = SeriesTable(
        [*samples, *(sample(4.0, size=1, variant=name, repetition=at) for name in "ab" for at in (0, 1))]
    )
    a, b, c = (table.get(KEY._replace(variant=name)) for name in names)
    assert a is not None
    assert b is not None
    assert c is not None
    found = a.ratio_to_best([b, c], 64, better="lower")
    assert found is not None
    assert found.best == 1
    assert found.ratio.estimate == pytest.approx(3.01 / 1.01)
    only = a.ratio_to_best([b, c], 1, better="lower")
    assert only is not None
    assert only.best == 0
    assert a.ratio_to_best([c], 1, better="lower") is None


def test_two_sizes_of_one_series_are_compared_one_by_one() -> None:
    table = SeriesTable([sample(value, size=size) for size, value in ((1, 2.0), (64, 6.0))])
    series = table.get(KEY)
    assert series is not None
    ratio = series.only(64).ratio_to(series.only(1), NO_SIZE)
    assert ratio is not None
    assert ratio.estimate == 3.0
