"""Two runs side by side: a real difference is named, noise is not, and what else differs is said."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.report import difference
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_comparison, print_summary
from rocelab.report.tests.synthetic import make_run

SIZES = tuple(1 << bit for bit in range(0, 23, 2))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> RunModel:
    return RunModel.of(make_run(tmp_path_factory.mktemp("a"), repetitions=10, sizes_bytes=SIZES))


@pytest.fixture(scope="module")
def again(tmp_path_factory: pytest.TempPathFactory) -> RunModel:
    return RunModel.of(make_run(tmp_path_factory.mktemp("b"), repetitions=10, sizes_bytes=SIZES, seed=2))


@pytest.fixture(scope="module")
def faster(tmp_path_factory: pytest.TempPathFactory) -> RunModel:
    root = tmp_path_factory.mktemp("c")
    return RunModel.of(make_run(root, repetitions=10, sizes_bytes=SIZES, seed=3, speed_up=1.3))


def printed(show: object, *arguments: object, width: int = 160, **options: object) -> str:
    out = io.StringIO()
    assert callable(show)
    show(Console(file=out, width=width), *arguments, **options)
    return out.getvalue()


def test_a_run_against_itself_has_no_difference(first: RunModel) -> None:
    found = difference.differences(first, first)
    assert len(found) == 2 * 3 * 5 * len(SIZES)
    assert not any(each.significant for each in found)
    assert {each.goodness.estimate for each in found} == {1.0}


def test_noise_is_rarely_called_a_difference(first: RunModel, again: RunModel) -> None:
    found = difference.differences(first, again)
    assert sum(each.significant for each in found) <= 0.05 * len(found)


def test_a_speed_up_is_found_where_it_is_and_only_there(first: RunModel, faster: RunModel) -> None:
    rows = difference.by_series(difference.differences(first, faster))
    soft = [row for row in rows if row.key.interconnect == "soft-roce"]
    tcp = [row for row in rows if row.key.interconnect == "tcp"]
    assert len(soft) == 18
    assert all(row.better == row.sizes and row.worse == 0 for row in soft)
    assert all(1.25 < row.typical < 1.35 for row in soft)
    assert sum(row.better + row.worse for row in tcp) <= 0.05 * sum(row.sizes for row in tcp)
    backwards = difference.by_series(difference.differences(faster, first))
    assert all(row.worse == row.sizes for row in backwards if row.key.interconnect == "soft-roce")


def test_another_metric_can_be_asked_for(first: RunModel, again: RunModel) -> None:
    found = difference.differences(first, again, ["cpu_client_cores"])
    assert {each.key.metric for each in found} == {"cpu_client_cores"}
    assert difference.differences(first, again, ["no_such_metric"]) == []


def test_what_else_differs_is_said(first: RunModel, again: RunModel) -> None:
    provenance = dataclasses.replace(
        again.info.provenance, kernel="9.9", tools={"perftest": "1.0", "iperf3": "0.0", "qperf": "0.0"}
    )
    other = RunModel(dataclasses.replace(again.info, provenance=provenance), again.samples)
    assert difference.other_conditions(first, other) == [
        ("kernel", "0.0.0-made-up", "9.9"),
        ("perftest", "0.0", "1.0"),
        ("sockperf", "0.0", "not recorded"),
    ]
    assert difference.other_conditions(first, first) == []


def test_the_terminal_shows_series_and_on_request_every_size(first: RunModel, faster: RunModel) -> None:
    found = difference.differences(first, faster)
    short = printed(print_comparison, first, faster, found, every_size=False)
    assert "soft-roce send" in short
    assert "Every size" not in short
    full = printed(print_comparison, first, faster, found, every_size=True)
    assert "Every size" in full
    assert full.count("soft-roce send") == short.count("soft-roce send") + 6 * len(SIZES)
    assert "no measurement in common" in printed(print_comparison, first, faster, [], every_size=False)


def test_the_summary_has_values_verdicts_failures_and_the_path(first: RunModel, tmp_path: Path) -> None:
    words = printed(print_summary, first, tmp_path / "index.html")
    assert "direct (server to server" in words
    assert "L5 not checkable here" in words
    assert "2 measurements failed" in words
    assert str(tmp_path / "index.html") in words.replace("\n", "")


@pytest.mark.parametrize("width", [60, 80])
def test_the_terminal_summary_is_whole_in_narrow_terminals(first: RunModel, width: int) -> None:
    words = printed(print_summary, first, width=width)
    assert "\N{HORIZONTAL ELLIPSIS}" not in words
    assert all(len(line) <= width for line in words.splitlines())
    assert "CPU/MiB, 64 KiB" in words
