"""The report without a browser: what it says, what it leaves out, and what it does with poor runs."""

from __future__ import annotations

import csv
import dataclasses
import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from rich.console import Console

from rocelab.load import Load
from rocelab.report import gallery, summary
from rocelab.report.model import RunModel, best_at
from rocelab.report.page import make_page
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_run
from rocelab.report.write import ReportFiles, summary_csv, write_report
from rocelab.results import ResultsError, RunStore, Sample


def page_of(model: RunModel) -> str:
    overviews, sections = gallery.overview_figures(model), gallery.sections(model)
    names = [each.name for each in overviews]
    names += [figure.name for section in sections for _, made in section.links for figure in made]
    return make_page(model, "study", overviews, sections, dict.fromkeys(names, "<svg/>"), pairs=[])


def without(model: RunModel, *interconnects: str) -> RunModel:
    return RunModel(model.info, [each for each in model.samples if each.interconnect not in interconnects])


@pytest.mark.slow
def test_the_files_are_there_and_small_enough(files: ReportFiles) -> None:
    assert files.page.stat().st_size < 8_000_000
    assert len(files.figures) == 36
    for path in files.figures:
        if path.suffix == ".svg":
            root = ET.fromstring(path.read_text(encoding="utf-8"))
            assert root.tag.endswith("svg")
        else:
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size > 5000


@pytest.mark.slow
def test_figures_of_an_earlier_report_do_not_stay(files: ReportFiles, store: RunStore, tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "figures").mkdir(parents=True)
    (target / "figures" / "gone.svg").write_text("old")
    small = make_run(tmp_path, sizes_bytes=(64, 1024), failures=False)
    made = write_report(small, target)
    assert made.page == target / "index.html"
    assert not (target / "figures" / "gone.svg").exists()
    assert (target / "figures" / "latency-direct.png").exists()


@pytest.mark.slow
def test_nothing_in_the_page_points_outside(html: str) -> None:
    markup = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert len(markup) > 100_000
    assert re.findall(r'(?:src|href)="(?!#|data:)[^"]*"', markup) == []
    assert "Content-Security-Policy" in html
    assert "default-src 'none'" in html


@pytest.mark.slow
def test_text_of_the_run_is_escaped(html: str) -> None:
    assert "<script>alert(1)</script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html


def test_the_page_has_what_issue_and_reader_ask_for(model: RunModel) -> None:
    page = page_of(model)
    for words in (
        "Contradicted",
        "Not checkable here",
        "neither frequently nor never",
        "stopped at its time limit of 10 s",
    ):
        assert words in page
    for words in ("0123456789abcdef0123456789abcdef01234567 with uncommitted changes", "2,484 of 2,484 measurements"):
        assert words in page
    for claim in ("S1", "S2", "S3", "L4", "L5"):
        assert f'id="claim-{claim}"' in page


def test_another_run_is_in_the_same_figures_if_its_series_differ(store: RunStore, tmp_path: Path) -> None:
    other = RunStore.create(tmp_path, dataclasses.replace(store.info, id="other"), "")
    soft = [each for each in store.current_samples() if each.interconnect == "soft-roce"]
    other.append(*(dataclasses.replace(each, run="other", interconnect="urxe-udp") for each in soft))
    other.close()
    labels = {style.label for style in RunModel.of(store, other).styles}
    assert {"Simulated Soft RoCE send", "Soft RoCE send"} <= labels
    with pytest.raises(ResultsError, match=r"both hold.*rocelab compare"):
        RunModel.of(store, store)


def test_failed_values_count_nowhere(model: RunModel) -> None:
    test = next(each for each in model.tests if each.test == "bidirectional-bandwidth")
    read = next(each for each in model.series("direct", test) if each.label == "Soft RoCE read")
    assert read.series.spread(4096).count == 2
    assert read.series.spread(8192).count == 3
    assert model.failed_step_count == 2


def test_the_best_tcp_is_chosen_size_by_size(model: RunModel) -> None:
    latency = model.tests[0]
    references = model.references(model.series("direct", latency))
    assert {each.label for each in references} == {"TCP blocking", "TCP busy-polling"}
    best = best_at(references, 64)
    assert best is not None
    assert best.label == "TCP busy-polling"
    assert best_at(references, 63) is None


def test_latency_ratios_are_turned_so_that_above_one_is_better(model: RunModel) -> None:
    ratios = model.speed_ratios(model.series("direct", model.tests[0]))
    assert list(ratios) == ["best TCP that polls", "best TCP"]
    at_64 = next(point for point in ratios["best TCP"] if point.size_bytes == 64)
    assert 1.1 < at_64.ratio.estimate < 1.5


@pytest.fixture(scope="module")
def controlled(model: RunModel) -> RunModel:
    """The same run with TCP under cubic, and blocking TCP once more under the machine's default, a little faster."""
    samples = []
    for sample in model.samples:
        if sample.interconnect != "tcp":
            samples.append(sample)
            continue
        samples.append(dataclasses.replace(sample, variant=f"{sample.variant}@cubic"))
        if sample.variant == "blocking":
            factor = 0.97 if sample.metric == "latency_us" else 1.03
            value = None if sample.value is None else sample.value * factor
            params = {**sample.params, "congestion_control_client": "bbr"}
            samples.append(dataclasses.replace(sample, variant="blocking@default", value=value, params=params))
    return RunModel(model.info, samples)


def test_each_tcp_is_named_with_its_congestion_control(controlled: RunModel) -> None:
    labels = {each.label for each in controlled.references(controlled.series("direct", controlled.tests[0]))}
    assert labels == {"TCP blocking, cubic", "TCP busy-polling, cubic", "TCP blocking, default (bbr)"}


def test_every_ratio_names_the_tcp_that_it_is_against(controlled: RunModel) -> None:
    tables = [
        table
        for section in gallery.sections(controlled)
        for _, made in section.links
        for figure in made
        for table in figure.tables
        if table.label == "Ratios as a table"
    ]
    assert len(tables) == 2 * 3
    cells = [cell for table in tables for row in table.rows for cell in row[1:] if cell != "none"]
    assert cells
    assert all(", cubic" in cell or ", default (bbr)" in cell for cell in cells)
    tiles = [tile for link in summary.link_summaries(controlled) for tile in link.tiles]
    assert all("cubic" in tile.headline or "default (bbr)" in tile.headline for tile in tiles)


def test_soft_roce_is_compared_with_tcps_that_wait_alike_and_all(controlled: RunModel) -> None:
    series = controlled.series("direct", next(test for test in controlled.tests if test.test == "bandwidth"))
    ratios = controlled.speed_ratios(series)
    assert {point.reference.label for point in ratios["best TCP that polls"]} == {"TCP busy-polling, cubic"}
    assert len({point.reference.label for point in ratios["best TCP"]}) > 1


def test_two_congestion_controls_of_one_program_are_drawn_apart(controlled: RunModel) -> None:
    looks = {style.label: (style.colour, style.shape, style.dash) for style in controlled.styles}
    assert looks["TCP blocking, cubic"] != looks["TCP blocking, default (bbr)"]


def test_both_ends_of_the_cpu_use_are_added_up(model: RunModel) -> None:
    series = model.cpu("direct", "cores")
    assert all(1.5 < each.series.spread(64).median <= 2.0 for each in series)
    assert len(series) == 3


def test_more_cores_than_there_are_is_pointed_out(model: RunModel) -> None:
    def words(factor: float) -> str:
        samples = [
            dataclasses.replace(each, value=each.value * factor)
            if each.metric == "cpu_client_cores" and each.value is not None
            else each
            for each in model.samples
        ]
        return gallery.sections(RunModel(model.info, samples))[-1].text

    assert "cannot be" not in words(1.0)
    assert "3.0 cores" in words(2.0) or "2.9 cores" in words(2.0)
    assert "cannot be" in words(2.0)


def test_a_section_has_switches_for_its_own_series_only(model: RunModel) -> None:
    only_send = [each for each in model.samples if each.test != "bandwidth" or each.variant not in ("read", "write")]
    made = {section.id: section for section in gallery.sections(RunModel(model.info, only_send))}
    assert [style.label for style in made["bandwidth"].series] == ["Soft RoCE send", "TCP blocking", "TCP busy-polling"]
    assert len(made["latency"].series) == 5


def test_the_summary_says_better_only_when_it_is_sure(model: RunModel) -> None:
    tiles = {tile.title: tile for tile in summary.link_summaries(model)[1].tiles}
    peak = tiles["Peak bandwidth"]
    assert peak.verdict == "unclear"
    assert "no clear difference" in peak.headline
    latency = {tile.title: tile for tile in summary.link_summaries(model)[0].tiles}["Latency, 64 B messages"]
    assert latency.verdict == "better"
    assert latency.headline.endswith("as fast as TCP busy-polling")


def test_a_series_that_checks_another_is_shown_never_compared(model: RunModel) -> None:
    fast = [
        dataclasses.replace(each, variant="blocking-qperf", value=0.001)
        for each in model.samples
        if each.variant == "blocking" and each.metric == "latency_us" and each.statistic == "median"
    ]
    made = RunModel(model.info, [*model.samples, *fast])
    series = made.series("direct", made.tests[0])
    assert "TCP blocking, by qperf" in {each.label for each in series}
    assert made.speed_ratios(series) == model.speed_ratios(model.series("direct", model.tests[0]))
    assert summary.link_summaries(made) == summary.link_summaries(model)


def test_a_run_without_tcp_has_no_ratios_and_still_a_page(model: RunModel) -> None:
    alone = without(model, "tcp")
    assert gallery.overview_figures(alone) == []
    page = page_of(alone)
    assert "no comparison" in page
    assert "This run holds no bandwidth samples of TCP" in page
    assert "Speed ratio Soft RoCE / TCP (above" not in page


def test_a_run_without_soft_roce_still_has_a_page(model: RunModel) -> None:
    page = page_of(without(model, "soft-roce"))
    assert "TCP blocking" in page
    assert "best: TCP" in page


def test_an_empty_interrupted_run_says_so(model: RunModel) -> None:
    info = dataclasses.replace(model.info, status="interrupted", ended_at=None)
    page = page_of(RunModel(info, []))
    assert "This run was interrupted." in page
    assert "0 of 2,484 measurements made" in page


def test_a_run_where_everything_failed_lists_the_first_failures(model: RunModel) -> None:
    failed = [
        dataclasses.replace(each, ok=False, value=None, error=f"error <{number}>")
        for number, each in enumerate(each for each in model.samples if each.statistic == "p99")
    ]
    page = page_of(RunModel(model.info, failed))
    assert "error &lt;0&gt;" in page
    assert "Only the first 200 are listed" in page


def test_unknown_tests_metrics_and_series_keep_their_own_names(model: RunModel) -> None:
    def renamed(sample: Sample) -> Sample:
        return dataclasses.replace(
            sample, level="newlevel", test="all-to-all", interconnect="newnet", metric="steps_per_s"
        )

    some = [renamed(each) for each in model.samples if each.metric == "latency_us" and each.statistic == "median"]
    made = RunModel(model.info, [*model.samples, *some])
    page = page_of(made)
    assert "All to all" in page
    assert "newnet send" in page
    colours = [style.colour for style in made.styles]
    assert len(set(colours)) == len(colours)


def test_a_single_size_and_repetition_can_be_drawn(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=1, sizes_bytes=(64,), failures=False))
    assert "with one repetition, none can be given" in page_of(model)


def test_summary_csv_has_a_line_for_each_metric_and_size(model: RunModel) -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(model))))
    row = next(
        each
        for each in rows
        if (each["link"], each["test"], each["variant"], each["metric"], each["size_bytes"])
        == ("direct", "latency", "send", "latency_us", "64")
    )
    assert (row["repetitions"], row["statistic"], row["unit"]) == ("3", "median", "us")
    assert float(row["min"]) <= float(row["median"]) <= float(row["max"])
    assert len({tuple(each.items()) for each in rows}) == len(rows)


def test_a_busy_machine_is_said_with_what_to_do_about_it(model: RunModel) -> None:
    load = Load(cores=2, others_cores=0.8, steal_cores=0.0, measured=100, disturbed=60, top={"firefox": 40.0})
    busy = RunModel(dataclasses.replace(model.info, load=load), model.samples)
    said = io.StringIO()
    print_summary(Console(file=said, width=200), busy)
    for words in (said.getvalue(), page_of(busy)):
        assert "This machine was busy." in words
        assert "Other programs took 40 % of the 2 cores, most of it firefox" in " ".join(words.split())
    assert model.load_advice is None
