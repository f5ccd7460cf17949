"""What the report makes of flows that share a link; the values are made up."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rocelab.claims.tests.test_claims import sample
from rocelab.report import gallery, sharing
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_info
from rocelab.report.write import write_report
from rocelab.results import LinkInfo, RunStore, Sample
from rocelab.variants import Flows, mix_names

LINK = LinkInfo("shared-1g", "bridge", 4200, 1000.0, ecn_percent=85.0)
TCP = Flows(1, "tcp", "blocking@cubic")
ROCE = Flows(1, "soft-roce", "write")


def measured(mix: Sequence[Flows], repetitions: Sequence[Sequence[float]], round_trip_ms: float) -> list[Sample]:
    """What the flows of a mix had in each repetition, in Mbps."""
    interconnect, variant = mix_names(mix)
    names = [f"{each.interconnect} {number}" for each in mix for number in range(1, each.count + 1)]
    found = []
    for at, rates in enumerate(repetitions):
        what: dict[str, Any] = {"link": LINK.id, "test": "sharing", "interconnect": interconnect, "variant": variant}
        what |= {"size_bytes": 65536, "nodes": len(names) + 2, "ranks": 2 * len(names), "repetition": at}
        found.append(sample(sum(rates), metric="throughput_mbps", unit="Mbps", statistic="total", **what))
        for name, rate in zip(names, rates, strict=True):
            found.append(sample(rate, metric="flow_mbps", unit="Mbps", statistic=name, **what))
        for statistic, factor in (("median", 1.0), ("p99", 3.0), ("min", 0.1)):
            value = round_trip_ms * factor
            found.append(sample(value, metric="round_trip_ms", unit="ms", statistic=statistic, **what))
        found.append(sample(0.5, metric="round_trips_lost_percent", unit="%", statistic="total", **what))
        found.append(sample(1234.0, metric="events_marked", unit="events", statistic="total", **what))
    return found


@pytest.fixture
def model() -> RunModel:
    info = dataclasses.replace(make_info("made-up", 3, 1, 8), links=(LINK,), claims=())
    four = dataclasses.replace(TCP, count=4)
    off = dataclasses.replace(ROCE, variant="write-without-dcqcn", count=2)
    samples = [
        *measured([ROCE, four], [(100, 200, 200, 200, 300), (150, 200, 200, 200, 250), (60, 200, 200, 200, 340)], 8.0),
        *measured([off], [(480, 520), (500, 500), (450, 550)], 0.7),
        *measured([TCP], [(900,), (910,), (920,)], 7.5),
    ]
    return RunModel(info, samples)


def test_the_shares_are_held_against_an_even_one(model: RunModel) -> None:
    shares, _ = sharing.tables(model, LINK)
    assert shares.rows == (
        (
            "2 Soft RoCE write (without DCQCN)",
            "Soft RoCE write, without DCQCN",
            "50 %",
            "48 % and 52 %",
            "0.96\u00d7 (0.90 to 1.00) and 1.04\u00d7 (1.00 to 1.10)",
            "yes",
        ),
        (
            "1 Soft RoCE write, 4 TCP blocking (cubic)",
            "Soft RoCE write",
            "20 %",
            "10 %",
            "0.50\u00d7 (0.30 to 0.75)",
            "no",
        ),
        (
            "1 Soft RoCE write, 4 TCP blocking (cubic)",
            "TCP blocking, cubic",
            "20 %",
            "20 % and 30 %",
            "1.00\u00d7 (1.00 to 1.00) and 1.50\u00d7 (1.25 to 1.70)",
            "yes",
        ),
    )


def test_the_queue_is_told_of_every_mix_also_of_one_flow(model: RunModel) -> None:
    _, queue = sharing.tables(model, LINK)
    assert [row[0] for row in queue.rows] == [
        "2 Soft RoCE write (without DCQCN)",
        "1 TCP blocking (cubic)",
        "1 Soft RoCE write, 4 TCP blocking (cubic)",
    ]
    assert queue.rows[1][1:] == (
        "910 Mbps (900 to 920)",
        "7.50 ms (7.50 to 7.50)",
        "22.5 ms (22.5 to 22.5)",
        "0.5 %",
        "1,234",
        "not told",
    )


def test_the_figures_show_each_flow_with_the_bounds(model: RunModel) -> None:
    (section,) = sharing.sections(model)
    ((title, (shares, queue)),) = section.links
    assert "marks from 85 % of its rate" in title
    assert shares.spec["datasets"]["band"] == [{"low": pytest.approx(1 / 1.5), "high": 1.5}]
    points = shares.spec["datasets"]["points"]
    # Two of them are in the middle of a row that has room for five.
    assert [point["place"] for point in points] == [1, 2, 0, 1, 2, 3, 4]
    assert {point["series"] for point in points} == set(shares.labels)
    assert {point["row"] for point in queue.spec["datasets"]["points"]} == {row[0] for row in queue.tables[0].rows}


def test_what_shares_a_link_has_no_place_among_the_tests_over_sizes(model: RunModel) -> None:
    assert model.tests == []
    assert gallery.sections(model) == []


def test_a_terminal_has_the_same_tables(model: RunModel) -> None:
    out = io.StringIO()
    print_summary(Console(file=out, width=200), model)
    assert "Share of each flow, shared-1g" in out.getvalue()
    assert "0.50\u00d7 (0.30 to 0.75)" in out.getvalue()


def test_a_run_without_it_has_no_such_section(model: RunModel) -> None:
    alone = RunModel(model.info, [each for each in model.samples if each.test != "sharing"])
    assert sharing.sections(alone) == []
    assert sharing.tables(alone, LINK) == []


def test_the_report_has_its_figures_as_files(model: RunModel, tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, dataclasses.replace(model.info, id="shares"), 'id = "shares"\n')
    store.append(*model.samples)
    files = write_report(store)
    assert {path.name for path in files.figures} >= {"sharing-shared-1g.svg", "sharing-queue-shared-1g.png"}
    page = files.page.read_text(encoding="utf-8")
    assert "Flows that share a link" in page
    assert "Within 1.5\u00d7" in page
