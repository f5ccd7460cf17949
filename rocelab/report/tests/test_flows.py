"""Flows in the report: a panel for each load and percentile, and a figure over what was varied."""

from __future__ import annotations

import dataclasses
import itertools

from rocelab.report import documents, flows
from rocelab.report.model import RunModel
from rocelab.report.render import svg
from rocelab.report.tests.synthetic import make_info
from rocelab.results import FLOWS_LEVEL, Sample
from rocelab.variants import setting_name

_SAMPLE = Sample(
    study="s",
    run="r",
    fabric="virtual",
    link="dcqcn",
    interconnect="roce-100g",
    level=FLOWS_LEVEL,
    test="websearch",
    variant="write:load=0.3",
    size_bytes=None,
    params={},
    metric="slowdown",
    unit="times",
    statistic="median",
    value=2.0,
    repetition=0,
    ok=True,
    error=None,
    tool="rocelab-virtual",
    tool_version="1",
    command="",
    started_at="",
    duration_s=0.0,
    log=None,
    order=0,
    nodes=16,
    ranks=16,
)


def _samples(settings: dict[str, list[float]]) -> list[Sample]:
    variants = [
        setting_name("write", {"load": 0.5} | {name: each}) for name, values in settings.items() for each in values
    ]
    lines = (("dcqcn", 1.0), ("none", 2.0))
    statistics = (("median", 1.5), ("p95", 4.0), ("p99", 9.0))
    return [
        dataclasses.replace(
            _SAMPLE,
            link=link,
            variant=variant,
            size_bytes=size_bytes,
            statistic=statistic,
            value=times * factor + repetition,
            repetition=repetition,
        )
        for variant, (link, factor), size_bytes, (statistic, times), repetition in itertools.product(
            variants, lines, (None, 10_000, 1_000_000), statistics, (0, 1)
        )
    ]


def test_each_load_and_percentile_has_a_panel_with_a_line_for_each_link() -> None:
    model = RunModel(make_info("r", 1, 1, 1), _samples({"load": [0.3, 0.8]}))
    (section,) = flows.sections(model)
    ((title, (figure,)),) = section.links
    assert title == "websearch, 16 hosts, roce-100g write"
    points = figure.spec["datasets"]["points"]
    assert {(point["row"], point["column"]) for point in points} == {
        (row, column) for row in ("median", "95 %", "99 %") for column in ("load 30 %", "load 80 %")
    }
    assert figure.labels == ("dcqcn", "none")
    worst = next(point for point in points if (point["series"], point["row"]) == ("none", "99 %"))
    assert (worst["value"], worst["low"], worst["high"]) == (18.5, 18.0, 19.0)
    assert "load 80 %" in svg(figure.static_spec)
    (table,) = figure.tables
    assert [row[0] for row in table.rows][:2] == ["load 30 %, 10000 B", "load 30 %, 1000000 B"]
    assert len(table.head) == 7


def test_what_has_three_values_or_more_has_a_figure_over_them() -> None:
    model = RunModel(make_info("r", 1, 1, 1), _samples({"switch.shared_shift": [1, 2, 3]}))
    (section,) = flows.sections(model)
    ((_, figures),) = section.links
    assert [figure.title for figure in figures[:-1]] == [
        f"Slowdown of flows by size: switch.shared_shift {value}" for value in (1, 2, 3)
    ]
    over = figures[-1]
    assert over.name.endswith("-over-switch.shared_shift")
    assert sorted({point["at"] for point in over.spec["datasets"]["points"]}) == [1.0, 2.0, 3.0]


def test_flows_have_no_other_section() -> None:
    model = RunModel(make_info("r", 1, 1, 1), _samples({"load": [0.3]}))
    assert model.every_test == []
    assert flows.sections(RunModel(make_info("r", 1, 1, 1), [])) == []


def test_documents_have_a_line_for_each_load_and_link() -> None:
    model = RunModel(make_info("r", 1, 1, 1), _samples({"load": [0.3, 0.8]}))
    caption, table = documents.slowdowns(model).split("\n\n")
    assert caption == (
        "Slowdown, websearch, 16 hosts, roce-100g write. Medians of 2 repetitions. "
        "The shortest flows have up to 10,000 B, the longest 10,000 to 1,000,000 B."
    )
    rows = [row.strip("| ").split(" | ") for row in table.split("\n")[2:]]
    assert [row[:2] for row in rows] == [[f"load {load} %", link] for load in (30, 80) for link in ("dcqcn", "none")]
    assert rows[0][2:] == ["2.00", "4.50", "9.50", "too few flows", "2.00", "9.50", "2.00", "9.50"]
    assert rows[3][2:5] == ["3.50", "8.50", "18.5"]


def test_flows_of_one_size_have_no_shortest_and_longest() -> None:
    one = [each for each in _samples({"load": [0.3]}) if each.size_bytes != 1_000_000]
    caption, table = documents.slowdowns(RunModel(make_info("r", 1, 1, 1), one)).split("\n\n")
    assert caption.endswith("Medians of 2 repetitions.")
    assert table.split("\n")[0] == "|  | link | all flows, median | 95 % | 99 % | 99.9 % |"
