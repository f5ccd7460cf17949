"""The sections on tests without sizes, such as barriers: what they take with each number of processes."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.report import catalogue
from rocelab.report.catalogue import Test
from rocelab.report.columns_figure import HEIGHT_PX, Column, Columns, columns_spec
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel, link_title
from rocelab.results import LinkInfo
from rocelab.stats import NO_SIZE, text


def sections(model: RunModel) -> list[Section]:
    """One for each test and metric, over all numbers of processes that it was run with."""
    by_test: dict[tuple[str, str], list[Test]] = {}
    for test in model.tests_without_sizes:
        by_test.setdefault((test.test, test.metric), []).append(test)
    return [_section(model, sorted(scales, key=_scale)) for scales in by_test.values()]


def _scale(test: Test) -> tuple[int, int]:
    return test.ranks, test.nodes


def _section(model: RunModel, scales: Sequence[Test]) -> Section:
    links = tuple(
        (link_title(link), (figure,)) for link in model.links if (figure := _figure(model, link, scales)) is not None
    )
    shown = {label for _, made in links for figure in made for label in figure.labels}
    styles = tuple(style for style in model.styles if style.label in shown)
    overlap = "-overlap" if scales[0].metric == "overlap_percent" else ""
    return Section(f"{scales[0].family}{overlap}", _title(scales), scales[0].text, links, styles)


def _title(scales: Sequence[Test]) -> str:
    """Without the number of processes: the section has several."""
    first = scales[0]
    return catalogue.mpi_title(first.test, first.metric)


def _group(test: Test) -> str:
    return f"{test.ranks} on {text.plural(test.nodes, 'node')}"


def _figure(model: RunModel, link: LinkInfo, scales: Sequence[Test]) -> Figure | None:
    measured = [(test, each) for test in scales for each in model.series(link.id, test)]
    if not measured:
        return None
    columns, words = [], []
    for test, each in measured:
        spread = each.series.spread(NO_SIZE)
        in_words = text.quantity_range(spread, each.series.unit)
        columns.append(Column(each.label, _group(test), spread.typical, spread.low, spread.high, in_words))
        words.append(f"{each.label}, {_group(test)}: {text.quantity(spread.typical, each.series.unit)}.")
    labels = {column.series for column in columns}
    shown = Columns(
        f"{scales[0].id}-{link.id}",
        _title(scales),
        link_title(link),
        columns,
        [_group(test) for test in scales],
        [style for style in model.styles if style.label in labels],
        measured[0][1].series.unit,
        "Time of a call" if scales[0].metric == "latency_us" else catalogue.metric(scales[0].metric).title,
    )
    return Figure(
        shown.name,
        shown.title,
        shown.subtitle,
        f"{shown.title}, {shown.subtitle}. {' '.join(words)}",
        columns_spec(shown, interactive=True),
        columns_spec(shown, interactive=False),
        (_table(model, link, scales, shown),),
        HEIGHT_PX,
        labels=tuple(style.label for style in shown.styles),
    )


def _table(model: RunModel, link: LinkInfo, scales: Sequence[Test], shown: Columns) -> DataTable:
    cells = {(column.group, column.series): column.words for column in shown.columns}
    labels = [style.label for style in shown.styles]
    rows = []
    for test in scales:
        points = model.speed_ratios(model.series(link.id, test)).get(catalogue.BEST_TCP, [])
        speed = text.times_range(points[0].ratio) if points else "none"
        rows.append((_group(test), *(cells.get((_group(test), label), "none") for label in labels), speed))
    head = ("Processes", *labels, "Speed ratio Soft RoCE / best TCP")
    caption = f"{shown.title}, {link.id}: median (smallest to largest)"
    return DataTable(caption, head, tuple(rows), "Values as a table").without_empty_end("none")
