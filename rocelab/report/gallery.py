"""Which figures and tables a run gets, and the words that go with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rocelab.report import catalogue, figures
from rocelab.report.catalogue import Test
from rocelab.report.figures import SIZES, Axis, Curves, Overview
from rocelab.report.model import RunModel, SpeedRatio, StyledSeries, link_title
from rocelab.results import LinkInfo
from rocelab.stats import Side, text


@dataclass(frozen=True)
class DataTable:
    """A table of words; the first cell of a row is its heading."""

    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    label: str = ""
    """What to call it beside its figure, where the caption would repeat what is there already."""
    wrap: bool = False
    """Cells hold text, which may be broken into lines."""

    def without_empty_end(self, empty: str) -> DataTable:
        """Without the last column if every cell of it is `empty`, as the speed ratio is where there is no TCP."""
        if any(row[-1] != empty for row in self.rows):
            return self
        return dataclasses.replace(self, head=self.head[:-1], rows=tuple(row[:-1] for row in self.rows))


@dataclass(frozen=True)
class Figure:
    """A figure with everything that stands around it."""

    name: str
    title: str
    subtitle: str
    alternative: str
    spec: dict[str, Any]
    """For the page: fills its container, no title or legend of its own."""
    static_spec: dict[str, Any]
    """For the files: with title and legend."""
    tables: tuple[DataTable, ...]
    height_px: int
    keys: tuple[catalogue.SeriesStyle, ...] = ()
    """Series that have no switch in the page: what their lines look like."""
    labels: tuple[str, ...] = ()
    """The series shown."""
    scrolls: bool = False
    """It has a width of its own, and does not fill its container."""


@dataclass(frozen=True)
class Section:
    """A test with its figures, link by link."""

    id: str
    title: str
    text: str
    links: tuple[tuple[str, tuple[Figure, ...]], ...]
    series: tuple[catalogue.SeriesStyle, ...]
    tables: tuple[DataTable, ...] = ()
    """In place of figures."""
    notes: tuple[str, ...] = ()
    """What of it was not measured, and why."""


def overview_figures(model: RunModel) -> list[Figure]:
    """One map of better and worse for each link."""
    found = []
    for link in model.links:
        rows = [
            (test.short, ratios[catalogue.BEST_TCP])
            for test in model.tests
            if catalogue.BEST_TCP in (ratios := model.speed_ratios(model.series(link.id, test)))
        ]
        if rows:
            found.append(_overview(link, rows))
    return found


def _overview(link: LinkInfo, rows: list[tuple[str, list[SpeedRatio]]]) -> Figure:
    alternative = " ".join(f"{name}: {balance(points)}." for name, points in rows)
    overview = Overview(f"overview-{link.id}", "Soft RoCE against the best TCP", link_title(link), rows)
    return Figure(
        overview.name,
        overview.title,
        overview.subtitle,
        f"{overview.title}, {overview.subtitle}. {alternative}",
        figures.overview_spec(overview, interactive=True),
        figures.overview_spec(overview, interactive=False),
        (),
        figures.ROW_HEIGHT_PX * len(rows) + 50,
    )


def balance(points: Sequence[SpeedRatio]) -> str:
    """At how many sizes which is better: ``Soft RoCE better at 20 of 23 sizes (1 B to 512 KiB), TCP at 1``."""
    sides = {side: [point.size_bytes for point in points if point.ratio.side is side] for side in Side}
    parts = []
    for side, name in ((Side.ABOVE, "Soft RoCE better"), (Side.BELOW, "TCP better")):
        sizes = sides[side]
        if sizes:
            where = "" if len(sizes) == len(points) else f" ({text.size_list(sizes)})"
            parts.append(f"{name} at {len(sizes)} of {text.plural(len(points), 'size')}{where}")
    if sides[Side.UNCLEAR]:
        parts.append(f"no clear difference at {len(sides[Side.UNCLEAR])}")
    return ", ".join(parts)


def sections(model: RunModel) -> list[Section]:
    """A section for each test, then one on CPU use."""
    made = [
        _section(model, test.id, test.title, test.text, [_test_figures(model, link, test) for link in model.links])
        for test in model.tests
    ]
    cpu = [_cpu_figures(model, link) for link in model.links]
    made.append(_section(model, "cpu", "CPU use", _cpu_words(model), cpu))
    return [section for section in made if section.links]


def _section(model: RunModel, name: str, title: str, words: str, by_link: list[tuple[Figure, ...]]) -> Section:
    links = tuple((link_title(link), made) for link, made in zip(model.links, by_link, strict=True) if made)
    shown = {label for _, made in links for figure in made for label in figure.labels}
    return Section(name, title, words, links, tuple(style for style in model.styles if style.label in shown))


def _cpu_words(model: RunModel) -> str:
    words = (
        "What moving data one way costs the nodes, both ends together: lower is better. A busy-polling program uses a "
        "whole core whether or not data moves; Soft RoCE by events sleeps, but looks for 100 us before."
    )
    medians = [
        summary.typical
        for link in model.links
        for each in model.cpu(link.id, "cores")
        for _, summary in each.series.spreads()
    ]
    cores = model.info.provenance.cores
    # Two programs cannot use more than there is; a tenth is what clocks may be apart.
    if model.info.fabric == "emulated" and max(medians, default=0.0) > 1.1 * cores:
        words += (
            f" Up to {max(medians):.1f} cores were computed here, which cannot be on {text.plural(cores, 'core')}: CPU "
            "time was not told apart from the start of the programs well enough. Take these values as rough."
        )
    return words


def _test_figures(model: RunModel, link: LinkInfo, test: Test) -> tuple[Figure, ...]:
    series = model.series(link.id, test)
    made = [_metric_figure(model, link, test, series)] if series else []
    ratios = model.speed_ratios(series)
    if ratios:
        made.append(_ratio_figure(link, test, ratios))
    return tuple(each for each in made if each is not None)


def _metric_figure(model: RunModel, link: LinkInfo, test: Test, series: list[StyledSeries]) -> Figure | None:
    metric = catalogue.metric(test.metric)
    rows = figures.metric_rows(series, positive=metric.log)
    if not rows:
        return None
    reference = None
    if test.metric == "bandwidth_mbps" and link.rate_mbps is not None:
        directions = 2 if test.test.startswith("bidirectional") else 1
        rate = link.rate_mbps * directions
        reference = (rate, f"link rate{', both directions' if directions == 2 else ''}: {_rate(rate)}")
    curves = Curves(
        f"{test.id}-{link.id}",
        test.title if test.metric == "bandwidth_mbps" else metric.title,
        link_title(link),
        rows,
        [each.style for each in series],
        series[0].series.unit,
        test.title if test.metric == "bandwidth_mbps" else metric.title,
        metric.log,
        reference,
        alternative=series_words(series),
    )
    tables = [metric_table(f"{test.title}, {link.id}: {range_words(series)}", "Values as a table", series)]
    for statistic, name in (("median", "median"), ("p99", "99th percentile")):
        beside = [each for each in model.tail(link.id, test, statistic) if each.series.statistic not in shown(series)]
        if beside:
            label = f"{text.upper_first(name)}s as a table"
            tables.append(metric_table(f"{test.title}, {link.id}: {name} of each start", label, beside))
    return figure_of(curves, tuple(tables))


def _rate(rate_mbps: float) -> str:
    return text.quantity(rate_mbps, "Mbps").replace(".00", "")


def _ratio_figure(link: LinkInfo, test: Test, ratios: dict[str, list[SpeedRatio]]) -> Figure:
    styles = [figures.RATIO_STYLES[name] for name in ratios]
    words = " ".join(
        f"{text.upper_first(figures.RATIO_STYLES[name].label)}: {balance(points)}." for name, points in ratios.items()
    )
    curves = Curves(
        f"{test.id}-ratio-{link.id}",
        "Speed ratio Soft RoCE / TCP (above 1\u00d7, Soft RoCE is better)",
        link_title(link),
        figures.ratio_rows(ratios),
        styles,
        "times",
        "Soft RoCE / TCP",
        reference=(1.0, ""),
        height_px=200,
        alternative=words,
    )
    return figure_of(curves, (_ratio_table(link, test, ratios),), keys=tuple(styles))


def _cpu_figures(model: RunModel, link: LinkInfo) -> tuple[Figure, ...]:
    return tuple(
        _cpu_figure(link, quantity, series)
        for quantity in ("us_per_mib", "cores")
        if (series := model.cpu(link.id, quantity))
    )


def _cpu_figure(link: LinkInfo, quantity: str, series: list[StyledSeries]) -> Figure:
    metric = catalogue.metric(f"cpu_{quantity}")
    unit, axis = ("cores", "CPU cores") if quantity == "cores" else ("us/MiB", "CPU time per MiB")
    curves = Curves(
        f"cpu-{quantity.replace('_', '-')}-{link.id}",
        metric.title,
        link_title(link),
        figures.metric_rows(series, positive=metric.log),
        [each.style for each in series],
        unit,
        axis,
        metric.log,
        height_px=240,
        alternative=series_words(series),
    )
    caption = f"{metric.title}, {link.id}: {range_words(series)}"
    return figure_of(curves, (metric_table(caption, "Values as a table", series),))


def figure_of(curves: Curves, tables: tuple[DataTable, ...], keys: tuple[catalogue.SeriesStyle, ...] = ()) -> Figure:
    """A figure of lines with its tables, for the page and for the files."""
    return Figure(
        curves.name,
        curves.title,
        curves.subtitle,
        f"{curves.title}, {curves.subtitle}. {curves.alternative} All values are in the table below.",
        figures.curves_spec(curves, interactive=True),
        figures.curves_spec(curves, interactive=False),
        tables,
        curves.height_px,
        keys,
        tuple(style.label for style in curves.styles),
    )


def range_words(series: Sequence[StyledSeries]) -> str:
    """What the values of a table are: ``mean (smallest to largest)``."""
    centres = dict.fromkeys(each.series.centre for each in series)
    return f"{' or '.join(centres)} (smallest to largest)"


def shown(series: Sequence[StyledSeries]) -> set[str]:
    """The statistics that series are of."""
    return {each.series.statistic for each in series}


def series_words(series: Sequence[StyledSeries], axis: Axis = SIZES) -> str:
    """What a screen reader says in place of the lines."""
    words = []
    for each in series:
        first, last = each.series.sizes[0], each.series.sizes[-1]
        values = [
            f"{text.quantity(each.series.spread(size).typical, each.series.unit)} at {axis.name(size)}"
            for size in dict.fromkeys((first, last))
        ]
        words.append(f"{each.label}: {' and '.join(values)}.")
    return " ".join(words)


def metric_table(caption: str, label: str, series: Sequence[StyledSeries], axis: Axis = SIZES) -> DataTable:
    """Typical values and ranges of series, a line for each size."""
    sizes = sorted({size for each in series for size in each.series.sizes})
    rows = tuple(
        (
            axis.name(size),
            *(
                text.quantity_range(each.series.spread(size), each.series.unit)
                if size in each.series.values
                else "none"
                for each in series
            ),
        )
        for size in sizes
    )
    return DataTable(caption, (axis.heading, *(each.label for each in series)), rows, label)


def _ratio_table(link: LinkInfo, test: Test, ratios: dict[str, list[SpeedRatio]]) -> DataTable:
    by_size: dict[int, dict[str, SpeedRatio]] = {}
    for name, points in ratios.items():
        for point in points:
            by_size.setdefault(point.size_bytes, {})[name] = point
    rows = tuple(
        (
            text.size(size),
            *(_ratio_words(points[name]) if name in points else "none" for name in ratios),
        )
        for size, points in sorted(by_size.items())
    )
    caption = f"{test.title}, {link.id}: speed ratio Soft RoCE / TCP (95 % confidence interval)"
    head = (
        "Message size",
        *(text.upper_first(figures.RATIO_STYLES[name].label) for name in ratios),
    )
    return DataTable(caption, head, rows, "Ratios as a table")


def _ratio_words(point: SpeedRatio) -> str:
    """A ratio with its interval, and which TCP it is against."""
    return f"{text.times_range(point.ratio)}, {point.reference.label}"
