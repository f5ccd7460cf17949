"""What the report makes of programs side by side; the values are made up."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rocelab.claims.tests.test_claims import sample
from rocelab.report import gallery, side_by_side
from rocelab.report.model import RunModel
from rocelab.report.terminal import print_summary
from rocelab.report.tests.synthetic import make_info
from rocelab.report.write import write_report
from rocelab.results import LinkInfo, RunStore, Sample

LINK = LinkInfo("direct", "direct", 9000)
NOTE = "side-by-side: 2 and 4 pairs are left out, for this run has 2 processors; 2 pairs need 4."


def measured(
    interconnect: str,
    variant: str,
    size_bytes: int,
    totals_mbps: Mapping[int, Sequence[float]],
    *,
    in_one: bool = False,
    processors: str = "own",
) -> list[Sample]:
    """What so many pairs moved together in each repetition; the least of them has 0.9 and the most 1.1 of the mean."""
    found = []
    for pairs, totals in totals_mbps.items():
        what: dict[str, Any] = {"link": LINK.id, "test": "side-by-side", "interconnect": interconnect}
        what |= {"variant": f"{variant}:queue_pairs={pairs}" if in_one else variant}
        what |= {"size_bytes": size_bytes, "ranks": 2 if in_one else 2 * pairs}
        for at, total in enumerate(totals):
            mean = total if in_one else total / pairs
            values = (
                (total, "throughput_mbps", "Mbps", "total"),
                (total * 1e6 / 8 / size_bytes, "message_rate_per_s", "1/s", "total"),
                (mean, "pair_mbps", "Mbps", "mean"),
                (0.9 * mean, "pair_mbps", "Mbps", "min"),
                (1.1 * mean, "pair_mbps", "Mbps", "max"),
                (2 * total, "wire_mbps", "Mbps", "total"),
            )
            for value, metric, unit, statistic in values:
                made = sample(value, metric=metric, unit=unit, statistic=statistic, repetition=at, **what)
                found.append(dataclasses.replace(made, params={**made.params, "processors": processors}))
    return found


def model_of(samples: Sequence[Sample], notes: tuple[str, ...] = ()) -> RunModel:
    info = dataclasses.replace(make_info("made-up", 3, 1, 8), links=(LINK,), claims=())
    return RunModel(
        dataclasses.replace(info, provenance=dataclasses.replace(info.provenance, notes=notes)), list(samples)
    )


def many() -> list[Sample]:
    """Soft RoCE on a machine of 64 processors: it grows less than the number of pairs."""
    counts = (1, 2, 4, 8, 16, 32)
    large = {pairs: [8000 * pairs**0.9, 8400 * pairs**0.9] for pairs in counts}
    small = {pairs: [512 * pairs**0.95] * 2 for pairs in counts}
    return [
        *measured("soft-roce", "send", 65536, large),
        *measured("soft-roce", "write", 65536, {pairs: [9000 * pairs**0.85] * 2 for pairs in counts}),
        *measured("tcp", "blocking@cubic", 65536, {pairs: [20_000 * pairs**0.8] * 2 for pairs in counts}),
        *measured("soft-roce", "write-one-program", 65536, {pairs: [9000] * 2 for pairs in counts}, in_one=True),
        *measured("soft-roce", "send", 64, small),
    ]


@pytest.fixture
def model() -> RunModel:
    return model_of(many())


def test_the_table_has_totals_ends_and_efficiency(model: RunModel) -> None:
    small, large = side_by_side.tables(model, LINK)
    what, where = "Messages per second of programs side by side, 64 B", "direct, processors of their own"
    assert small.caption == f"{what}, {where}: mean (smallest to largest)"
    assert small.rows[:2] == (
        ("Soft RoCE send", "1", "1.00 million/s (1.00 to 1.00)", "900 thousand/s", "100 %"),
        ("Soft RoCE send", "2", "1.93 million/s (1.93 to 1.93)", "869 thousand/s to 1.06 million/s", "97 %"),
    )
    assert [row for row in large.rows if row[0] == "Soft RoCE send" and row[1] == "32"] == [
        ("Soft RoCE send", "32", "186 Gbps (181 to 190)", "5.22 Gbps to 6.38 Gbps", "71 %")
    ]
    assert large.rows[-1] == (
        "Soft RoCE write, one program",
        "32",
        "9.00 Gbps (9.00 to 9.00)",
        "not told apart",
        "100 %",
    )


def test_the_figure_has_a_line_for_each_series_and_its_ideal(model: RunModel) -> None:
    (section,) = side_by_side.sections(model)
    ((_, (_, large)),) = section.links
    assert set(large.labels) == {
        *("Soft RoCE send", "Soft RoCE write", "TCP blocking, cubic", "Soft RoCE write, one program"),
        *("Soft RoCE send, ideal", "Soft RoCE write, ideal", "TCP blocking, cubic, ideal"),
    }
    points = large.spec["datasets"]["points"]
    ideal = {point["size"]: point["value"] for point in points if point["series"] == "Soft RoCE send, ideal"}
    assert ideal == {pairs: pytest.approx(8200 * pairs) for pairs in (1, 2, 4, 8, 16, 32)}
    assert {style.label for style in section.series} >= set(large.labels)
    assert section.tables == ()
    assert section.notes == ()


def test_one_program_over_iwarp_is_one_series_over_its_queue_pairs() -> None:
    samples = measured("soft-iwarp", "write-one-program", 65536, {1: [9000.0], 2: [8100.0]}, in_one=True)
    named = [
        dataclasses.replace(each, variant=f"write-one-program:queue_pairs={at + 1}@cubic")
        for at in range(2)
        for each in samples[6 * at : 6 * at + 6]
    ]
    (table,) = side_by_side.tables(model_of(named), LINK)
    assert [(row[0], row[1], row[-1]) for row in table.rows] == [
        ("iWARP write, one program, cubic", "1", "100 %"),
        ("iWARP write, one program, cubic", "2", "90 %"),
    ]


def test_without_one_pair_the_fewest_are_the_measure() -> None:
    found = model_of(measured("soft-roce", "send", 65536, {2: [10_000.0], 4: [10_000.0]}))
    (table,) = side_by_side.tables(found, LINK)
    assert [row[-1] for row in table.rows] == ["100 %", "50 %"]


def test_pairs_on_fewer_cores_than_processors_are_said() -> None:
    samples = [
        dataclasses.replace(each, params={**each.params, "cores": min(each.ranks, 4)})
        for each in measured("soft-roce", "send", 65536, {1: [8000.0], 2: [16_000.0], 4: [20_000.0]})
    ]
    (table,) = side_by_side.tables(model_of(samples), LINK)
    assert [row[1] for row in table.rows] == ["1", "2", "4 on 4 cores"]


def test_where_one_point_ran_the_reason_stands_in_place_of_the_figure() -> None:
    found = model_of(measured("soft-roce", "send", 65536, {1: [8000.0]}), (NOTE, "of something else"))
    (section,) = side_by_side.sections(found)
    assert section.links == ()
    assert section.notes == ("2 and 4 pairs are left out, for this run has 2 processors; 2 pairs need 4.",)
    (table,) = section.tables
    assert table.rows == (("Soft RoCE send", "1", "8.00 Gbps", "7.20 Gbps", "100 %"),)


def test_where_nothing_could_run_the_section_says_why() -> None:
    (section,) = side_by_side.sections(model_of([], (NOTE,)))
    assert (section.links, section.tables) == ((), ())
    assert len(section.notes) == 1
    assert side_by_side.sections(model_of([])) == []


def test_processors_that_are_shared_are_said() -> None:
    found = model_of(measured("soft-roce", "send", 65536, {1: [8e3], 2: [6e3]}, processors="shared"))
    (section,) = side_by_side.sections(found)
    ((_, (figure,)),) = section.links
    assert "one processor for all programs of a server" in figure.subtitle
    assert figure.title == "Throughput of programs side by side, on shared processors, 64 KiB"
    # No more processors are in use for more pairs.
    points = {(point["series"], point["size"]): point["value"] for point in figure.spec["datasets"]["points"]}
    assert points["Soft RoCE send, ideal", 2] == points["Soft RoCE send", 1] == 8000
    assert [row[-1] for row in figure.tables[0].rows] == ["100 %", "75 %"]


def test_they_have_no_place_among_the_tests_over_sizes(model: RunModel) -> None:
    assert model.tests == []
    assert gallery.sections(model) == []


def test_a_terminal_has_the_same_tables(model: RunModel) -> None:
    out = io.StringIO()
    print_summary(Console(file=out, width=200), model)
    assert "Throughput of programs side by side, 64 KiB, direct" in out.getvalue()
    assert "186 Gbps (181 to 190)" in out.getvalue()


@pytest.mark.parametrize("samples", [many(), measured("soft-roce", "send", 64, {1: [512.0]})])
def test_the_report_is_written_with_figures_or_with_the_reason(samples: list[Sample], tmp_path: Path) -> None:
    found = model_of(samples, () if len(samples) > 10 else (NOTE,))
    store = RunStore.create(tmp_path, dataclasses.replace(found.info, id="side"), 'id = "side"\n')
    store.append(*samples)
    files = write_report(store)
    page = files.page.read_text(encoding="utf-8")
    assert "Many programs at once" in page
    names = {path.name for path in files.figures}
    if len(samples) > 10:
        assert names >= {"side-by-side-64-direct.svg", "side-by-side-65536-direct.png"}
    else:
        assert not names
        assert "<p>2 and 4 pairs are left out, for this run has 2 processors; 2 pairs need 4.</p>" in page
