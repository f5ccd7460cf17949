"""A run held against the bars."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from rocelab import peers
from rocelab.report import documents
from rocelab.report.bar_list import BARS
from rocelab.report.bars import Bar, BestTcp, Line, Side, held
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_bars
from rocelab.report.tests.synthetic import IWARP_TIMES, make_run
from rocelab.study import catalogue
from rocelab.study.loading import load

SEND, POLLING = Side("soft-roce", "send"), BestTcp("polling")


def verdict(model: RunModel, bound: float, *, at_least: bool = False) -> str:
    bar = Bar("made up", "latency", SEND, POLLING, "at least" if at_least else "at most", bound)
    return held(model, [bar])[0].verdict


def test_the_worst_size_decides(tmp_path: Path) -> None:
    # One message takes 2.3 us against 2.9 us, which is 0.79 of it.
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(1, 64)))
    assert verdict(model, 0.95) == "met"
    assert verdict(model, 0.60) == "not met"
    assert verdict(model, 0.60, at_least=True) == "met"
    assert verdict(model, 0.95, at_least=True) == "not met"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_number_is_cut_in_a_narrow_terminal(tmp_path: Path, width: int) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10))
    out = io.StringIO()
    found = held(model, BARS)
    print_bars(Console(file=out, width=width), model, found)
    said = out.getvalue()
    assert "\N{HORIZONTAL ELLIPSIS}" not in said
    assert max(len(line) for line in said.splitlines()) <= width
    for each in found:
        assert all(word in said for word in each.bar.what.split())
        if each.worst is not None:
            assert f"{each.worst.ratio.estimate:.2f}" in said
    assert ("95 %" in said) == (width >= 80)


def test_what_was_not_measured_is_not_met(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path))
    bar = Bar("made up", "latency", SEND, Side("udp", "busy-poll"), "at most", 100.0)
    assert held(model, [bar])[0].verdict == "not measured"


def test_an_interconnect_that_a_run_does_not_have_is_not_spoken_of(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path))
    assert any(bar.subject.interconnect == peers.SOFT_IWARP for bar in BARS)
    assert {each.bar.subject.interconnect for each in held(model, BARS)} == {peers.SOFT_ROCE}
    assert "iWARP" not in documents.balance(model) + documents.bars(model) + documents.sizes(model)


def test_iwarp_is_held_against_tcp_and_against_soft_roce(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64,), iwarp=True))
    found = {each.bar.what: each.points for each in held(model, BARS) if each.points}
    ((of_tcp,), (of_roce,)) = (found[f"iWARP SEND latency / {other}"] for other in ("TCP that polls", "Soft RoCE"))
    assert of_tcp.reference == "TCP busy-polling"
    assert of_roce.reference == "Soft RoCE send"
    assert of_roce.ratio.estimate == pytest.approx(IWARP_TIMES, rel=0.1)
    assert "| iWARP SEND latency / TCP that polls |" in documents.balance(model)


def test_iwarp_is_held_against_others_under_its_best_control_at_each_size(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64, 1048576), controls=True))
    found = {each.bar.what: each.points for each in held(model, BARS) if each.points}
    short, long = found["iWARP SEND bandwidth / Soft RoCE"]
    assert (short.control, long.control) == ("cubic", "default")
    latency = found["iWARP SEND latency / Soft RoCE"][0]
    assert latency.ratio.estimate == pytest.approx(IWARP_TIMES, rel=0.1)
    assert latency.against == "Soft RoCE send; iWARP under cubic"
    assert all(point.control is None for what, points in found.items() if "iWARP" not in what for point in points)
    assert "| TCP busy-polling; iWARP under cubic |" in documents.bars(model) + documents.sizes(model)
    out = io.StringIO()
    print_bars(Console(file=out, width=160), model, held(model, BARS), every_size=True)
    assert "iWARP: under the best of its congestion controls." in " ".join(out.getvalue().split())


def test_without_a_bar_sizes_ahead_of_the_best_tcp_are_counted(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64, 1024)))
    found = held(model, [Bar("made up", "latency", SEND, BestTcp(), "at most")])[0]
    assert found.verdict == "ahead at 2"
    assert [(point.size_bytes, point.reference) for point in found.points] == [
        (64, "TCP busy-polling"),
        (1024, "TCP busy-polling"),
    ]


def test_a_line_carries_its_rate_less_the_headers() -> None:
    assert Line(1000, 1024).payload_mbps == pytest.approx(925.9, abs=0.1)
    assert Line(1000, 1024, ways=2).payload_mbps == pytest.approx(1851.7, abs=0.1)


def test_a_bar_is_about_its_sizes(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(1, 64, 4096)))
    bar = Bar("made up", "latency", SEND, POLLING, "at most", 0.95, sizes_bytes=(64, 1024))
    assert [point.size_bytes for point in held(model, [bar])[0].points] == [64]


def test_shares_of_a_line_take_the_headers_of_each_into_account(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64,)))
    plain = Bar("made up", "latency", SEND, POLLING, "at most")
    # What carries half as much payload has twice the share with the same rate.
    of_lines = dataclasses.replace(plain, lines=(Line(1000, 82), Line(1000, 82, header_bytes=0)))
    (first,), (second,) = (each.points for each in held(model, [plain, of_lines]))
    assert second.ratio.estimate == pytest.approx(2 * first.ratio.estimate)
    assert second.ratio.low == pytest.approx(2 * (first.ratio.low or 0))


def test_a_ratio_is_held_against_that_of_a_quiet_machine(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64,)))
    quiet = Bar("quiet", "latency", SEND, POLLING, "at most")
    (point,) = held(model, [Bar("made up", "latency", SEND, POLLING, "at most", 1.1, quiet=quiet)])[0].points
    (alone,) = held(model, [quiet])[0].points
    assert point.ratio.estimate == pytest.approx(1)
    assert point.ratio.low is not None
    assert alone.ratio.low is not None
    # Two ratios are less sure than one.
    assert point.ratio.low < alone.ratio.low / alone.ratio.estimate
    assert point.ratio.high is not None
    assert point.ratio.high > 1


def test_the_study_measures_every_bar() -> None:
    study, _ = load(catalogue.resolve("bars"))
    measured = {
        (link.id, test.level, *test.every_test, interconnect, peers.name_of(variant))
        for test in study.test
        for link in study.links_of(test)
        for interconnect, variants in test.variants.items()
        for variant in variants
    }
    for bar in (*BARS, *(bar.quiet for bar in BARS if bar.quiet is not None)):
        place = (bar.subject.link, bar.level, bar.test)
        assert (*place, bar.subject.interconnect, bar.subject.variant) in measured, bar.what
        if isinstance(bar.reference, Side):
            side = bar.reference
            assert (side.link, *place[1:], side.interconnect, side.variant) in measured, bar.what
        elif isinstance(bar.reference, BestTcp):
            names = bar.reference.names or peers.references(bar.level, peers.TCPS[bar.level], bar.reference.waiting)
            assert any((*place, peers.TCP, peers.name_of(name)) in measured for name in names), bar.what
