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
    rows: list[tuple[str, ...]] = []
    for row in table.rows:
        cells = []
        for column, published in zip(table.columns, row.values, strict=True):
            pair = (column.interconnect, column.variant)
            found = [each for each in samples if (each.interconnect, each.variant) == pair and each.test == row.test]
            cells.append(_cells(published, found))
        names = (row.name, f"{row.name}, simulated", f"{row.name}, error")
        rows += [(name, *line) for name, line in zip(names, zip(*cells, strict=True), strict=True)]
    notes = [f"of the source, simulated, and the error, in {table.unit}", *_notes(table, samples)]
    caption = f"{table.title}, {link}: {'; '.join(notes)}"
    return DataTable(caption, ("", *(column.name for column in table.columns)), tuple(rows))


def _cells(published: float, found: Sequence[Sample]) -> tuple[str, str, str]:
    """What the source has, what the run has, and the error."""
    values = [sample.value for sample in found if sample.value is not None]
    if not values:
        return f"{published:.2f}", "none", ""
    value = spread(values).median
    error = f"{100 * (value / published - 1):+.1f} %"
    # What was set is no prediction.
    is_set = any(sample.params.get("calibrated_on") == sample.interconnect for sample in found)
    return f"{published:.2f}", f"{value:.2f}", "calibrated" if is_set else error


def _notes(table: SourceTable, samples: Sequence[Sample]) -> Iterator[str]:
    """How the values came about."""
    names = {column.interconnect: column.name for column in table.columns}
    chosen = {str(sample.params["calibrated_on"]) for sample in samples if "calibrated_on" in sample.params}
    for adapter in sorted(chosen):
        yield f"speed of the processors from {names.get(adapter, adapter)}"
    some = {sample.test: sample.params["iterations"] for sample in samples if "iterations" in sample.params}
    for row in table.rows:
        if row.test in some:
            yield f"{text.plural(int(some[row.test]), 'iteration')} of {row.name} stand for all"
