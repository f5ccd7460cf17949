"""The section on flows that arrive at random: their slowdown by size under each load, and over what was varied."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rocelab.report import catalogue
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel
from rocelab.report.panels_figure import Panels, Point, panels_height_px, panels_spec
from rocelab.results import FLOWS_LEVEL, SLOWDOWN_METRIC, Sample
from rocelab.stats import text
from rocelab.variants import SETTINGS_MARK, settings_of

_TEXT = (
    "Flows arrive at random, whatever the network makes of those before. Slowdown is how many times as long a flow "
    "takes as alone on the empty network, from its start until its sender has the completion. All links see the same "
    "flows. Bars are the range of the repetitions, each of which has a seed of its own."
)
#: Statistics of all flows, and what they are called.
_STATISTICS: Final[Mapping[str, str]] = {"median": "median", "p95": "95 %", "p99": "99 %", "p99.9": "99.9 %"}
#: Those that have a row of panels: bins have too few flows for the last.
_ROWS: Final[Mapping[str, str]] = {each: name for each, name in _STATISTICS.items() if each != "p99.9"}
_LOAD: Final = "load"
#: In place of a size: of all flows.
_ALL_FLOWS: Final = 0
#: Values of a setting from which on it has a figure of its own.
_SWEEP_MIN: Final = 3
_COLUMNS_MAX: Final = 4

_Settings = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Group:
    """What a figure is of."""

    test: str
    nodes: int
    interconnect: str
    variant: str

    @property
    def id(self) -> str:
        return f"flows-{self.test}-{self.nodes}-{self.interconnect}-{self.variant}"

    @property
    def title(self) -> str:
        return f"{self.test}, {text.plural(self.nodes, 'host')}, {self.interconnect} {self.variant}"


#: By link, settings, statistic and size, the values of the repetitions.
_Cells = Mapping[tuple[str, _Settings, str, int], Sequence[float]]


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has flows."""
    groups = _groups(model)
    links = tuple((group.title, tuple(_figures(group, cells))) for group, cells in groups.items())
    shown = {label for _, figures in links for figure in figures for label in figure.labels}
    styles = tuple(style for _, cells in groups.items() for style in _styles(cells) if style.label in shown)
    return [Section("flows", "Flow completion times", _TEXT, links, tuple(dict.fromkeys(styles)))] if links else []


def tables(model: RunModel) -> list[DataTable]:
    """For documents: by load, or what else was set, and link, the slowdowns of all, the shortest and the longest."""
    return [_by_link(group, cells) for group, cells in _groups(model).items()]


def _groups(model: RunModel) -> Mapping[_Group, _Cells]:
    groups: dict[_Group, dict[tuple[str, _Settings, str, int], list[float]]] = {}
    for sample in model.samples:
        if sample.level == FLOWS_LEVEL and sample.metric == SLOWDOWN_METRIC and sample.value is not None:
            cells = groups.setdefault(_group_of(sample), defaultdict(list))
            settings = tuple(settings_of(sample.variant).items())
            cells[sample.link, settings, sample.statistic, sample.size_bytes or _ALL_FLOWS].append(sample.value)
    return groups


def _by_link(group: _Group, cells: _Cells) -> DataTable:
    """A line for each setting and link: all flows, and those of the first and the last bin."""
    told = [(_ALL_FLOWS, statistic) for statistic in _STATISTICS]
    head = ["", "link", "all flows, median", *list(_STATISTICS.values())[1:]]
    often = max(len(values) for values in cells.values())
    caption = f"Slowdown, {group.title}. Medians of {text.plural(often, 'repetition')}."
    sizes = sorted({size_bytes for _, _, _, size_bytes in cells} - {_ALL_FLOWS})
    if len(sizes) > 1:
        caption += f" The shortest flows have up to {sizes[0]:,} B, the longest {sizes[-2]:,} to {sizes[-1]:,} B."
        for name, size_bytes in (("shortest", sizes[0]), ("longest", sizes[-1])):
            told += [(size_bytes, "median"), (size_bytes, "p99")]
            head += [f"{name}, median", "99 %"]
    rows = []
    for settings in dict.fromkeys(settings for _, settings, _, _ in cells):
        for link in dict.fromkeys(link for link, *_ in cells):
            found = [cells.get((link, settings, statistic, size_bytes)) for size_bytes, statistic in told]
            if any(found):
                words = (text.number(median(values)) if values else "too few flows" for values in found)
                rows.append((_words(settings), link, *words))
    return DataTable(caption, tuple(head), tuple(rows))


def _group_of(sample: Sample) -> _Group:
    variant = sample.variant.partition(SETTINGS_MARK)[0]
    return _Group(sample.test, sample.nodes, sample.interconnect, variant)


def _styles(cells: _Cells) -> list[SeriesStyle]:
    links = dict.fromkeys(link for link, *_ in cells)
    looks = [catalogue.FIGURE_LOOKS[at % len(catalogue.FIGURE_LOOKS)] for at in range(len(links))]
    return [SeriesStyle(link, *look) for link, look in zip(links, looks, strict=True)]


def _figures(group: _Group, cells: _Cells) -> Iterator[Figure]:
    every = list(dict.fromkeys(settings for _, settings, _, _ in cells))
    by_others: dict[_Settings, list[_Settings]] = defaultdict(list)
    for settings in every:
        by_others[_without(settings, _LOAD)].append(settings)
    for others, same in list(by_others.items())[:_COLUMNS_MAX]:
        yield _by_size(group, cells, others, same)
    for name in dict.fromkeys(name for settings in every for name, _ in settings):
        values = {dict(settings)[name] for settings in every}
        if len(values) >= _SWEEP_MIN and all(_is_number(value) for value in values):
            yield _sweep(group, cells, name, every)


def _without(settings: _Settings, name: str) -> _Settings:
    return tuple(pair for pair in settings if pair[0] != name)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _words(settings: _Settings) -> str:
    """Settings for people: ``load 50 %, switch.shared_shift 3``."""
    return ", ".join(
        f"load {100 * float(value):g} %" if name == _LOAD else f"{name} {value}" for name, value in settings
    )


def _point(link: str, row: str, column: str, at: float, values: Sequence[float]) -> Point:
    typical = median(values)
    words = text.times(typical)
    if len(values) > 1:
        words += f" ({text.times(min(values))[:-1]} to {text.times(max(values))[:-1]})"
    return Point(link, row, column, at, typical, min(values), max(values), words)


def _by_size(group: _Group, cells: _Cells, others: _Settings, same: Sequence[_Settings]) -> Figure:
    """Slowdown over size: columns are loads."""
    columns = {settings: _words(tuple(pair for pair in settings if pair[0] == _LOAD)) for settings in same}
    points = [
        _point(link, _ROWS[statistic], columns[settings], size_bytes, values)
        for (link, settings, statistic, size_bytes), values in cells.items()
        if settings in columns and statistic in _ROWS and size_bytes != _ALL_FLOWS
    ]
    suffix = "".join(f"-{name}-{value}" for name, value in others)
    shown = Panels(
        f"{group.id}{suffix}",
        ": ".join(part for part in ("Slowdown of flows by size", _words(others)) if part),
        group.title,
        points,
        [row for row in _ROWS.values() if any(point.row == row for point in points)],
        list(columns.values()),
        _styles(cells),
        "Flow size, bytes",
        "Slowdown",
        x_log=True,
    )
    return _figure(shown, "flows of at most", lambda size_bytes: text.size(round(size_bytes)))


def _sweep(group: _Group, cells: _Cells, name: str, every: Sequence[_Settings]) -> Figure:
    """Slowdown of all flows over what was varied: columns are the other settings."""
    columns = {settings: _words(_without(settings, name)) or "all flows" for settings in every}
    several = list(dict.fromkeys(columns.values()))[:_COLUMNS_MAX]
    points = [
        _point(link, _ROWS[statistic], columns[settings], float(dict(settings)[name]), values)
        for (link, settings, statistic, size_bytes), values in cells.items()
        if columns[settings] in several and statistic in _ROWS and size_bytes == _ALL_FLOWS
    ]
    at = [point.at for point in points]
    shown = Panels(
        f"{group.id}-over-{name}",
        f"Slowdown of all flows over {name}",
        group.title,
        points,
        [row for row in _ROWS.values() if any(point.row == row for point in points)],
        several,
        _styles(cells),
        name,
        "Slowdown",
        x_log=min(at) > 0 and max(at) / min(at) >= 10,
    )
    return _figure(shown, name, "{:,g}".format)


def _figure(shown: Panels, heading: str, name_of: Callable[[float], str]) -> Figure:
    labels = tuple(style.label for style in shown.styles)
    return Figure(
        shown.name,
        shown.title,
        shown.subtitle,
        f"{shown.title}, {shown.subtitle}. All values are in the table below.",
        panels_spec(shown, interactive=True),
        panels_spec(shown, interactive=False),
        (_table(shown, heading, name_of),),
        panels_height_px(shown),
        labels=labels,
        scrolls=True,
    )


def _table(shown: Panels, heading: str, name_of: Callable[[float], str]) -> DataTable:
    """A line for each column of panels and value of the axis; a column for each line and statistic."""
    cells = {(point.column, point.at, point.series, point.row): point.words for point in shown.points}
    series = [style.label for style in shown.styles]
    places = dict.fromkeys((point.column, point.at) for point in shown.points)
    order = sorted(places, key=lambda place: (shown.columns.index(place[0]), place[1]))
    rows = tuple(
        (
            f"{column}, {name_of(at)}",
            *(cells.get((column, at, each, row), "too few flows") for each in series for row in shown.rows),
        )
        for column, at in order
    )
    head = (f"Setting, {heading}", *(f"{each}, {row}" for each in series for row in shown.rows))
    return DataTable(
        f"{shown.title}, {shown.subtitle}: median of the repetitions (range)", head, rows, "Values as a table"
    )
