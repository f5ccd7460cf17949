"""The tables of the sources beside a run."""

from __future__ import annotations

import dataclasses

from rocelab.claims.tests.test_claims import INFO, sample
from rocelab.report import source_tables
from rocelab.report.model import RunModel
from rocelab.results import LinkInfo, Sample


def cell(interconnect: str, test: str, value: float, **params: str | int) -> Sample:
    made = sample(value)
    return dataclasses.replace(
        made,
        link="sx6036", interconnect=interconnect, level="nas", test=test, variant="smpi", size_bytes=None,
        metric="time_s", unit="s", statistic="max", value=value, nodes=4, ranks=64, params=params,
    )  # fmt: skip


def model(samples: list[Sample]) -> RunModel:
    links = (LinkInfo("sx6036", "one-switch", 2048),)
    return RunModel(dataclasses.replace(INFO, links=links, claims=("V11",), fabric="virtual"), samples)


def test_a_cell_stands_beside_that_of_the_source_with_its_error() -> None:
    samples = [
        cell("infiniband-qdr", "ft.C", 10.458, calibrated_on="roce-40g"),
        cell("roce-40g", "ft.C", 9.71, calibrated_on="roce-40g"),
        cell("infiniband-fdr", "lu.C", 24.03, iterations=10),
    ]
    (table,) = source_tables.tables(model(samples))
    rows = {row[0]: row[1:] for row in table.rows}
    assert list(rows)[:4] == ["FT", "FT, simulated", "FT, error", "IS"]
    assert rows["FT"] == ("9.96", "8.80", "14.39", "9.71")
    assert rows["FT, simulated"] == ("10.46", "none", "none", "9.71")
    assert rows["FT, error"] == ("+5.0 %", "", "", "calibrated")
    assert rows["LU, error"][1] == "+0.0 %"
    assert "speed of the processors from RoCE (40GigE)" in table.caption
    assert "10 iterations of LU stand for all" in table.caption


def test_a_run_without_its_tests_has_no_such_table() -> None:
    assert source_tables.tables(model([cell("infiniband-qdr", "cg.C", 1.0)])) == []
    assert source_tables.tables(model([dataclasses.replace(cell("roce-10g", "ft.C", 1.0), ranks=16)])) == []
