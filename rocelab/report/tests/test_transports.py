"""RoCE beside iWARP in the report."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocelab.report import catalogue, documents, transports
from rocelab.report.model import RunModel
from rocelab.report.tests.synthetic import LINKS, make_run
from rocelab.report.write import write_report

#: None, and those that have a look of their own.
CONTROLS = ("", "@default", "@bbr", "@reno", "@dctcp")


def test_each_link_has_a_table_with_both_and_the_best_tcp(tmp_path: Path) -> None:
    model = RunModel.of(make_run(tmp_path, repetitions=10, sizes_bytes=(64, 65536), iwarp=True))
    tables = transports.tables(model)
    assert [link.id in table.caption for link, table in zip(LINKS, tables, strict=True)] == [True, True]
    (latency,) = (row for row in tables[0].rows if row[0] == "Latency, 64 B, send")
    # As fast as one that takes 1.5 times as long, and TCP that polls takes 2.9 us against 3.45.
    assert latency[4].startswith("1.4") or latency[4].startswith("1.5")
    assert latency[5].startswith("0.8")
    assert {row[0].rsplit(", ", 1)[1] for row in tables[0].rows} == {"send"}
    assert any(row[0] == "CPU time per MiB, 64 KiB, send" for row in tables[0].rows)


def test_iwarp_is_taken_under_the_control_that_is_best_at_each_size(tmp_path: Path) -> None:
    plain = RunModel.of(make_run(tmp_path / "a", repetitions=10, sizes_bytes=(64, 1048576), iwarp=True))
    controlled = RunModel.of(make_run(tmp_path / "b", repetitions=10, sizes_bytes=(64, 1048576), controls=True))
    before, now = (
        {row[0]: row for row in transports.tables(model)[0].rows if row[0].startswith(("Latency", "Bandwidth"))}
        for model in (plain, controlled)
    )
    assert now.keys() == before.keys()
    # At each size one of the two is what iWARP without a named control is.
    for name, control in (("Latency, 64 B, send", "cubic"), ("Bandwidth, 1 MiB, send", "default")):
        assert now[name][2].endswith(f", {control}")
        assert [float(cell.split("\u00d7")[0]) for cell in now[name][4:]] == pytest.approx(
            [float(cell.split("\u00d7")[0]) for cell in before[name][4:]], rel=0.1
        )
    assert "," not in before["Latency, 64 B, send"][2]


def test_what_only_one_of_them_has_is_left_out(tmp_path: Path) -> None:
    store = make_run(tmp_path, repetitions=2, sizes_bytes=(64,), iwarp=True)
    samples = [each for each in store.samples() if (each.interconnect, each.test) != ("soft-iwarp", "latency")]
    rows = [row[0] for table in transports.tables(RunModel(store.info, samples)) for row in table.rows]
    assert rows
    assert not [row for row in rows if row.startswith("Latency")]
    only_roce = [each for each in samples if each.interconnect != "soft-iwarp"]
    assert transports.tables(RunModel(store.info, only_roce)) == []


def test_documents_have_the_same_tables_or_say_that_there_are_none(tmp_path: Path) -> None:
    store = make_run(tmp_path, repetitions=2, sizes_bytes=(64,), iwarp=True)
    assert documents.transports(RunModel.of(store)).count("\n| Latency, 64 B, send |") == len(LINKS)
    without = RunModel(store.info, [each for each in store.samples() if each.interconnect != "soft-iwarp"])
    assert documents.transports(without) == "The run that is kept has no iWARP."


def test_the_page_has_the_tables_and_their_lines_in_the_figures(tmp_path: Path) -> None:
    store = make_run(tmp_path, repetitions=2, sizes_bytes=(64, 1024), iwarp=True)
    lossy = tuple(dataclasses.replace(link, loss_percent=1.0) for link in store.info.links)
    store.note(links=lossy)
    html = write_report(store, tmp_path / "report").page.read_text(encoding="utf-8")
    assert "RoCE beside iWARP" in html
    assert "iWARP send" in html
    assert "1 % loss" in html


def test_the_page_names_iwarp_with_its_control(tmp_path: Path) -> None:
    store = make_run(tmp_path, repetitions=2, sizes_bytes=(64, 1024), controls=True)
    html = write_report(store, tmp_path / "report").page.read_text(encoding="utf-8")
    assert "iWARP send, cubic" in html
    assert "iWARP send, default" in html
    assert "TCP send" not in html


def test_lines_of_iwarp_differ_by_shape_or_dash_in_operation_and_control() -> None:
    names = [f"{name}{control}" for name in ("send", "write", "read", "send-events") for control in CONTROLS]
    styles = [catalogue.series_style("soft-iwarp", name, default_control="bbr") for name in names]
    assert len({(style.shape, style.dash) for style in styles}) == len(styles)
    assert [style.label for style in styles[:3]] == ["iWARP send", "iWARP send, default (bbr)", "iWARP send, bbr"]
    # Cubic looks as iWARP did before its control was named.
    cubic, unnamed = (catalogue.series_style("soft-iwarp", name) for name in ("write@cubic", "write"))
    assert (cubic.shape, cubic.dash) == (unnamed.shape, unnamed.dash)
    mpi = catalogue.series_style("soft-iwarp", "mpich-ofi@cubic").label
    assert mpi == "iWARP, MPICH with OFI, cubic"
