"""The tables of the sources: each cell beside what the run gave for it, with its error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocelab.claims import SourceTable, claims_by_id, tables_of
from rocelab.report.gallery import DataTable
from rocelab.report.model import RunModel
from rocelab.results import Sample
from rocelab.stats import spread, text


def tables(model: RunModel) -> list[DataTable]:
    """Those of which the run has a cell, for each of its links."""
    made = []
    for table in tables_of(claims_by_id(model.info.claims)):
        for link in model.links:
            samples = [sample for sample in model.samples if _is_of(table, sample) and sample.link == link.id]
            made += [_table(table, link.id, samples)] if samples else []
    return made


def _is_of(table: SourceTable, sample: Sample) -> bool:
    shape = (sample.level, sample.metric, sample.nodes, sample.ranks)
    is_shown = shape == (table.level, table.metric, table.nodes, table.ranks)
    return sample.ok and is_shown and any(row.test == sample.test for row in table.rows)


def _table(table: SourceTable, link: str, samples: Sequence[Sample]) -> DataTable:
    rows = []
    for row in table.rows:
        cells: list[str] = []
        for column, published in zip(table.columns, row.values, strict=True):
            pair = (column.interconnect, column.variant)
            found = [each for each in samples if (each.interconnect, each.variant) == pair and each.test == row.test]
            cells += _cells(published, found)
        rows.append((row.name, *cells))
    head = ["", *(f"{column.name}{what}" for column in table.columns for what in ("", ", here", ", error"))]
    how = "; ".join([f"in {table.unit}, beside the simulation and its error", *_notes(table, samples)])
    return DataTable(f"{table.title}, {link}: {how}", tuple(head), tuple(rows))


def _cells(published: float, found: Sequence[Sample]) -> tuple[str, str, str]:
    values = [sample.value for sample in found if sample.value is not None]
    if not values:
        return f"{published:g}", "none", ""
    value = spread(values).median
    error = f"{100 * (value / published - 1):+.1f} %"
    # What was set is no prediction.
    is_set = any(sample.params.get("calibrated_on") == sample.interconnect for sample in found)
    return f"{published:g}", f"{value:.2f}", "calibrated" if is_set else error


def _notes(table: SourceTable, samples: Sequence[Sample]) -> Iterator[str]:
    """How the values came about."""
    names = {column.interconnect: column.name for column in table.columns}
    chosen = {str(sample.params["calibrated_on"]) for sample in samples if "calibrated_on" in sample.params}
    for adapter in sorted(chosen):
        yield f"the speed of the processors is from {names.get(adapter, adapter)}"
    some = {sample.test: sample.params["iterations"] for sample in samples if "iterations" in sample.params}
    for row in table.rows:
        if row.test in some:
            yield f"of {row.name}, {text.plural(int(some[row.test]), 'iteration')} were simulated and stand for all"
