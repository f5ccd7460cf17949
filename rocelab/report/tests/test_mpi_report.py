"""What the report and the terminal make of MPI: a section for each test and scale, and the source's figures again."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
from rich.console import Console

from rocelab.report import gallery, redrawn, render, sizeless, summary
from rocelab.report.difference import differences
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_comparison, print_summary
from rocelab.report.tests.test_report import page_of
from rocelab.report.write import summary_csv
from rocelab.results import Sample

#: Of the made-up run: what stands for which series of MPI.
_SERIES = {
    ("soft-roce", "send"): "openmpi-ucx",
    ("tcp", "blocking"): "openmpi-ob1",
    ("tcp", "busy-poll"): "openmpi-ucx",
}


@pytest.fixture(scope="module")
def mpi(model: RunModel) -> RunModel:
    """The made-up run as if its tests had been `latency` and `bw` of MPI, and allreduce on 16 processes."""

    def renamed(sample: Sample, test: str, nodes: int, ranks: int) -> Sample:
        variant = _SERIES[sample.interconnect, sample.variant]
        return dataclasses.replace(sample, level="mpi", test=test, variant=variant, nodes=nodes, ranks=ranks)

    made = []
    for sample in model.samples:
        if (sample.interconnect, sample.variant) not in _SERIES:
            continue
        if sample.test == "latency":
            made += [renamed(sample, "latency", 2, 2), renamed(sample, "allreduce", 4, 16)]
            made += [renamed(sample, "allreduce", 4, 64)]
            if sample.size_bytes == 64:
                barrier = dataclasses.replace(renamed(sample, "barrier", 4, 4), size_bytes=None)
                made += [barrier, dataclasses.replace(barrier, ranks=64), dataclasses.replace(barrier, test="Barrier")]
        elif sample.test == "bandwidth":
            made.append(renamed(sample, "bw", 2, 2))
    return RunModel(model.info, made)


def test_a_test_without_sizes_is_a_figure_of_columns(mpi: RunModel, tmp_path: Path) -> None:
    section, of_imb = sizeless.sections(mpi)
    assert (section.title, of_imb.title) == ("MPI barrier", "IMB Barrier")
    names = [figure.name for each in (section, of_imb) for _, (figure,) in each.links]
    assert len(set(names)) == 4, "one does not take the other's place"
    assert section.id != of_imb.id
    (_, (figure,)), _ = section.links
    assert {(at["group"], at["series"]) for at in figure.static_spec["datasets"]["points"]} == {
        (group, series) for group in ("4 on 4 nodes", "64 on 4 nodes") for series in figure.labels
    }
    assert figure.tables[0].rows[0][0] == "4 on 4 nodes"
    assert figure.tables[0].rows[0][-1].endswith(")"), "a ratio with its interval"
    (tmp_path / "figure.svg").write_text(render.svg(figure.static_spec))
    lines = [line for line in summary_csv(mpi).splitlines() if ",barrier," in line]
    assert len(lines) == 2 * 2 * 3
    assert lines[0].startswith("direct,mpi,barrier,")
    assert ",median,,3," in lines[0], "no size"


def test_runs_are_compared_without_sizes_too(mpi: RunModel) -> None:
    found = [each for each in differences(mpi, mpi) if each.key.test == "barrier"]
    assert len(found) == 2 * 2 * 3
    console = Console(width=200, record=True, file=io.StringIO())
    print_comparison(console, mpi, mpi, found, every_size=True)
    said = console.export_text()
    assert "0 B" not in said


def test_each_scale_is_a_section_with_its_ratio(mpi: RunModel) -> None:
    assert [test.title for test in mpi.tests] == [
        "MPI latency",
        "MPI allreduce, 16 processes on 4 nodes",
        "MPI allreduce, 64 processes on 4 nodes",
        "MPI bandwidth",
    ]
    for test in mpi.tests:
        ratios = mpi.speed_ratios(mpi.series("direct", test))
        assert list(ratios) == ["best TCP"], "all MPI programs poll, so there is one comparison"
    names = [figure.name for section in gallery.sections(mpi) for _, made in section.links for figure in made]
    assert len(names) == len(set(names)) == 4 * 2 * 2


def test_the_figures_of_the_source_are_drawn_again(mpi: RunModel) -> None:
    sections = {section.id: section for section in redrawn.sections(mpi)}
    assert set(sections) == {"source-softroce1g", "source-lanl2010"}
    figures = [figure for _, made in sections["source-softroce1g"].links for figure in made]
    bandwidth = next(figure for figure in figures if figure.title == "Figure 2: MPI_Bandwidth Test")
    assert bandwidth.labels == ("Soft RoCE", "Ethernet")
    assert "Bandwidth (MB/s)" in str(bandwidth.static_spec)
    assert "Message Size (Bytes)" in str(bandwidth.static_spec)
    ours = next(each for each in mpi.series("direct", mpi.tests[3]) if each.label == "Soft RoCE, Open MPI")
    by_name = {figure.test: figure for figure in mpi.source_figures if figure.source.id == "softroce1g"}
    again = mpi.source_lines("direct", by_name["bw"], (2, 2))
    assert again[0].series.spread(1024).median == pytest.approx(ours.series.spread(1024).median / 8)


def test_a_run_without_mpi_has_no_figures_of_mpi(model: RunModel) -> None:
    assert redrawn.sections(model) == []


def test_the_page_says_what_is_compared(mpi: RunModel) -> None:
    page = page_of(mpi)
    assert "MPI over Soft RoCE against MPI over whichever TCP is best" in page
    assert "busy-polling, as Soft RoCE benchmarks do" not in page
    assert "MPI allreduce, 64 processes on 4 nodes" in page


def test_the_summary_holds_mpi_against_the_better_tcp(mpi: RunModel) -> None:
    tables = summary.chosen_sizes_tables(mpi, mpi.links[0])
    assert len(tables) == 1
    assert tables[0].head[-1] == "Speed ratio Soft RoCE, Open MPI / best TCP"
    console = Console(width=100, record=True, file=io.StringIO())
    print_summary(console, mpi)
    said = console.export_text()
    assert "allreduce 16/4, 64 B" in said
    assert "barrier 4/4 " in said
    assert "Best TCP" in said
    assert "TCP poll." not in said


def test_the_summary_has_no_ratios_where_nothing_is_compared(mpi: RunModel) -> None:
    alone = RunModel(mpi.info, [sample for sample in mpi.samples if sample.interconnect != "tcp"])
    (table,) = summary.chosen_sizes_tables(alone, alone.links[0])
    assert table.head == ("Test and message size", "Soft RoCE, Open MPI")
    assert {len(row) for row in table.rows} == {len(table.head)}
