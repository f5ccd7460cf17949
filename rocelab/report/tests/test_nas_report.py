"""What the report makes of NAS programs; the values are made up."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.claims.tests.test_claims import sample
from rocelab.report import difference, gallery, nas
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_info
from rocelab.report.write import summary_csv, write_report
from rocelab.results import LinkInfo, RunStore, Sample

LINKS = (LinkInfo("switch", "bridge", 4200),)
#: Seconds by test, interconnect and variant, one for each repetition.
TIMES_S = {
    ("is.S", "tcp", "openmpi-ob1"): (0.4, 0.5, 0.6),
    ("is.S", "tcp", "mpich-ofi"): (1.0, 1.1, 1.2),
    ("is.S", "soft-roce", "openmpi-ucx"): (0.24, 0.25, 0.26),
    ("ft.A", "tcp", "openmpi-ob1"): (4.0, 4.0, 4.0),
    ("ft.A", "soft-roce", "openmpi-ucx"): (8.0, 8.0, 8.0),
}


def made(test: str, interconnect: str, variant: str, times_s: tuple[float, ...]) -> list[Sample]:
    found = []
    for repetition, time_s in enumerate(times_s):
        values = [("time_s", "s", "max", time_s), ("mops", "Mop/s", "total", 100 / time_s)]
        values += [("mpi_percent", "%", "mean", 25.0), ("mpi_percent", "%", "max", 90.0)]
        found += [
            sample(
                value,
                link="switch",
                level="nas",
                test=test,
                interconnect=interconnect,
                variant=variant,
                size_bytes=None,
                nodes=4,
                ranks=4,
                metric=metric,
                unit=unit,
                statistic=statistic,
                repetition=repetition,
            )
            for metric, unit, statistic, value in values
        ]
    return found


@pytest.fixture
def model() -> RunModel:
    info = dataclasses.replace(make_info("made-up", 3, 5, 15), links=LINKS)
    samples = [each for what, times_s in TIMES_S.items() for each in made(*what, times_s)]
    return RunModel(info, samples)


def test_the_table_has_times_rates_shares_and_ratios_to_best_tcp(model: RunModel) -> None:
    (table,) = nas.tables(model, LINKS[0])
    assert table.rows[0][:5] == (
        "IS S, 4 ranks",
        "Soft RoCE, Open MPI",
        "0.25 s (0.24 to 0.26)",
        "400",
        "25.0 %",
    )
    assert table.rows[0][5].startswith("2.0\u00d7 ("), "0.25 s against the 0.5 s of Open MPI over TCP"
    assert [row[5] for row in table.rows[1:3]] == ["", ""]
    assert table.rows[3][5].startswith("0.50\u00d7")


def test_the_figure_has_a_row_for_each_program(model: RunModel) -> None:
    (section,) = nas.sections(model)
    ((title, (figure,)),) = section.links
    assert title.startswith("switch")
    points = figure.spec["datasets"]["points"]
    assert {point["job"] for point in points} == {"IS S, 4 ranks", "FT A, 4 ranks"}
    assert {(point["low"], point["value"], point["high"]) for point in points} >= {(0.24, 0.25, 0.26), (8.0, 8.0, 8.0)}
    assert "FT A, 4 ranks, Soft RoCE, Open MPI: 8.00 s" in figure.alternative
    assert figure.labels == ("Soft RoCE, Open MPI", "TCP, Open MPI's own", "TCP, MPICH with OFI")


def test_programs_have_no_place_among_the_tests_over_sizes(model: RunModel) -> None:
    assert model.every_test == []
    assert gallery.sections(model) == []


def test_a_run_with_a_failure_is_reported_whole(model: RunModel, tmp_path: Path) -> None:
    failed = dataclasses.replace(model.samples[-1], test="mg.A", value=None, ok=False, error="wrong results")
    store = RunStore.create(tmp_path, model.info, "schema = 1\n")
    store.append(*model.samples, failed)
    files = write_report(store)
    page = files.page.read_text()
    assert "NAS Parallel Benchmarks" in page
    assert "NAS mg.A, 4 processes on 4 nodes" in page
    assert {path.name for path in files.figures} == {"nas-switch.svg", "nas-switch.png"}


def test_the_terminal_shows_the_table(model: RunModel) -> None:
    out = io.StringIO()
    print_summary(Console(file=out, width=80), model)
    rows = [line.split() for line in out.getvalue().splitlines() if "4 ranks" in line]
    assert rows[0][:10] == ["IS", "S,", "4", "ranks", "0.25", "s", "25.0", "%", "0.5", "s"], "the better of two TCPs"
    assert "0.50\u00d7" in rows[1]


def test_the_csv_has_every_metric(model: RunModel) -> None:
    lines = summary_csv(model).splitlines()
    assert "switch,nas,is.S,soft-roce,openmpi-ucx,time_s,s,max,,3,0.25,0.25,0.24,0.26,4,4" in lines
    assert "switch,nas,ft.A,tcp,openmpi-ob1,mpi_percent,%,mean,,3,25,25,25,25,4,4" in lines


def test_two_runs_are_compared_by_time(model: RunModel) -> None:
    halved = [
        dataclasses.replace(each, value=each.value / 2) if each.metric == "time_s" and each.value else each
        for each in model.samples
    ]
    rows = difference.by_series(difference.differences(model, RunModel(model.info, halved)))
    assert len(rows) == len(TIMES_S)
    assert {(row.key.metric, row.sizes) for row in rows} == {("time_s", 1)}
    assert all(row.typical == pytest.approx(2.0) for row in rows), "half the time is twice as good"
