"""The course of simulations in the report: from the logs of a run, and nothing where there are none."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from rocelab.report import courses, page
from rocelab.report.model import RunModel
from rocelab.report.tests.synthetic import make_info
from rocelab.results import Sample

POINT = {
    "at_ns": 50_000,
    "queue_bytes": 123_000,
    "paused_part": 0.25,
    "notifications": 7,
    "throughput_gbps": 40.0,
}


def _sample(link: str) -> Sample:
    return Sample(
        study="s",
        run="r",
        fabric="virtual",
        link=link,
        interconnect="roce-25g",
        level="network",
        test="mesh",
        variant="write",
        size_bytes=65536,
        params={"series": True},
        metric="throughput_mbps",
        unit="Mbps",
        statistic="total",
        value=40_000.0,
        repetition=0,
        ok=True,
        error=None,
        tool="rocelab-virtual",
        tool_version="1",
        command="",
        started_at="",
        duration_s=0.0,
        log="logs/1.json",
        order=0,
        nodes=4,
        ranks=24,
    )


def test_what_was_noted_is_drawn(tmp_path: Path) -> None:
    info = make_info("r", 1, 1, 1)
    (tmp_path / "logs").mkdir()
    outcome = {"outcome": {"series": [POINT, POINT | {"at_ns": 100_000, "queue_bytes": 456_000}]}}
    (tmp_path / "logs" / "1.json").write_text(json.dumps(outcome), encoding="utf-8")
    (section,) = courses.sections(RunModel(info, [_sample(info.links[0].id)]), tmp_path)
    ((_, figures),) = section.links
    assert [figure.title for figure in figures] == ["Throughput", "Longest queue", "Paused", "Congestion notifications"]
    assert "456 KB" in figures[1].alternative
    assert figures[0].labels == ("roce-25g write, 4 servers",)


def test_runs_that_noted_nothing_have_no_such_section(tmp_path: Path) -> None:
    info = make_info("r", 1, 1, 1)
    silent = dataclasses.replace(_sample(info.links[0].id), params={})
    assert courses.sections(RunModel(info, [silent]), tmp_path) == []


def test_a_report_of_simulations_says_how_far_predictions_are_off() -> None:
    info = make_info("r", 1, 1, 1)
    model = RunModel(info, [_sample(info.links[0].id)])
    said = {str(row[0]): str(row[1]) for row in page._provenance_table(model).rows}
    assert "How far predictions are off" not in said
    simulated = RunModel(dataclasses.replace(info, fabric="virtual"), model.samples)
    said = {str(row[0]): str(row[1]) for row in page._provenance_table(simulated).rows}
    assert "in latency (4 sources)" in said["How far predictions are off"]
