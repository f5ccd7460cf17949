"""The section on many nodes that send at once: what they move together as their number grows, and what was lost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from rocelab.claims import linearity
from rocelab.report import catalogue, figures
from rocelab.report.catalogue import MESH_RATE_STYLE, Mesh
from rocelab.report.figures import NODES, Curves, Row
from rocelab.report.gallery import DataTable, Figure, Section, figure_of, series_words
from rocelab.report.model import RunModel, StyledSeries, link_title
from rocelab.results import EVENTS_METRIC, LinkInfo
from rocelab.stats import text

_TEXT = (
    "Many servers send at the same time: each to every other in a full mesh, all others to the first in an incast, "
    "each of one half with one of the other half in a bisection. Drawn is what all of them receive together. The "
    "dashed line is what their cables would carry. Linearity is what was measured over the number of servers times "
    "the throughput of one, which is taken from the smallest number of servers; of an incast, whose servers share one "
    "cable, it is the throughput over that of the smallest."
)
#: Counters named in a cell.
_PLACES_SHOWN: Final = 2
#: A node and one of its counters.
_Place = tuple[str, str]
_EVENTS_TEXT: Final = {
    "lost": "lost or damaged",
    "paused": "held back by flow control",
    "marked": "marked as congested",
    "resent": "sent or asked for again",
}


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has meshes."""
    links = tuple((link_title(link), made) for link in model.links if (made := tuple(_figures(model, link))))
    shown = {label for _, made in links for figure in made for label in figure.labels}
    styles = (*model.styles, MESH_RATE_STYLE)
    found = Section(
        "mesh", "Many servers at once", _TEXT, links, tuple(style for style in styles if style.label in shown)
    )
    return [found] if links else []


def tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """The throughput by number of servers on a link, and where packets were lost, paused, marked or sent again."""
    found = []
    for mesh in catalogue.MESHES:
        if series := model.mesh(link.id, mesh):
            found += [_table(model, link, mesh, series), *_events_tables(model, link, mesh, series)]
    return found


def shares(mesh: Mesh, each: StyledSeries) -> dict[int, float]:
    """By number of servers, what they move of what they would if each had as much as with the fewest.

    Where they share one cable: of what the fewest move.
    """
    if mesh.grows:
        return linearity(each.series)
    fewest = each.series.spread(min(each.series.sizes)).typical
    return {nodes: spread.typical / fewest for nodes, spread in each.series.spreads()}


def _figures(model: RunModel, link: LinkInfo) -> Iterator[Figure]:
    for mesh in catalogue.MESHES:
        series = model.mesh(link.id, mesh)
        if series:
            yield _figure(model, link, mesh, series)


def _figure(model: RunModel, link: LinkInfo, mesh: Mesh, series: Sequence[StyledSeries]) -> Figure:
    rows = figures.metric_rows(series, positive=False)
    styles = [each.style for each in series]
    if link.rate_mbps is not None:
        styles.append(MESH_RATE_STYLE)
        numbers = sorted({row.at for row in rows})
        rows += [_rate_row(nodes, (nodes if mesh.grows else 1) * link.rate_mbps) for nodes in numbers]
    curves = Curves(
        f"{mesh.test}-{mesh.level}-{link.id}",
        mesh.title,
        link_title(link),
        rows,
        styles,
        series[0].series.unit,
        "Total throughput",
        log=False,
        axis=NODES,
        alternative=series_words(series, NODES),
    )
    return figure_of(curves, (_table(model, link, mesh, series), *_events_tables(model, link, mesh, series)))


def _rate_row(nodes: int, total_mbps: float) -> Row:
    return Row(MESH_RATE_STYLE.label, nodes, total_mbps, total_mbps, total_mbps, text.quantity(total_mbps, "Mbps"))


def _table(model: RunModel, link: LinkInfo, mesh: Mesh, series: Sequence[StyledSeries]) -> DataTable:
    head = [NODES.heading]
    for each in series:
        head += [f"{each.label}: total", "per server (lowest to highest)", "linearity"]
    counts = sorted({nodes for each in series for nodes in each.series.sizes})
    rows = tuple(
        (str(nodes), *(cell for each in series for cell in _cells(model, mesh, each, nodes))) for nodes in counts
    )
    return DataTable(f"{mesh.title}, {link.id}: median (smallest to largest)", tuple(head), rows, "Values as a table")


def _cells(model: RunModel, mesh: Mesh, each: StyledSeries, nodes: int) -> tuple[str, str, str]:
    if nodes not in each.series.values:
        return ("none", "none", "none")
    total = each.series.spread(nodes)
    # In an incast one of them only receives.
    senders = nodes if mesh.grows else nodes - 1
    per_node = text.quantity(total.typical / senders, each.series.unit)
    key = each.series.key._replace(metric="node_throughput_mbps")
    ends = [model.series_of(key, statistic) for statistic in ("min", "max")]
    if all(end is not None and nodes in end.values for end in ends):
        low, high = (text.quantity(end.spread(nodes).typical, end.unit) for end in ends if end is not None)
        per_node += f" ({low} to {high})"
    share = shares(mesh, each)[nodes]
    return (text.quantity_range(total, each.series.unit), per_node, f"{100 * share:.0f} %")


def _events_tables(model: RunModel, link: LinkInfo, mesh: Mesh, series: Sequence[StyledSeries]) -> Iterator[DataTable]:
    """What happened to packets at which node, by the counters that grew; none where nothing was counted."""
    grown: dict[tuple[str, int, str, _Place], list[float]] = defaultdict(list)
    repetitions: dict[tuple[str, int], set[int]] = defaultdict(set)
    labels = {(each.series.key.interconnect, each.series.key.variant): each.label for each in series}
    for sample in model.samples:
        label = labels.get((sample.interconnect, sample.variant))
        what = (sample.link, sample.level, sample.test)
        if label is None or what != (link.id, mesh.level, mesh.test) or sample.value is None:
            continue
        repetitions[label, sample.nodes].add(sample.repetition)
        kind, _, counter = sample.metric.removeprefix(EVENTS_METRIC).partition(".")
        if sample.metric.startswith(EVENTS_METRIC) and counter:
            grown[label, sample.nodes, kind, (sample.statistic, counter)].append(sample.value)
    places: dict[tuple[str, int, str], list[tuple[float, _Place]]] = defaultdict(list)
    for (label, nodes, kind, where), counts in grown.items():
        # A repetition in which a counter did not grow has no sample of it.
        missing = [0.0] * (len(repetitions[label, nodes]) - len(counts))
        if typical := median([*counts, *missing]):
            places[label, nodes, kind].append((typical, where))
    rows = tuple(
        (label, str(nodes), _EVENTS_TEXT[kind], _where(counted))
        for (label, nodes, kind), counted in sorted(places.items())
    )
    if rows:
        head = ("", NODES.heading, "packets", "counted most, at the median of the repetitions")
        title = f"{mesh.title}, {link.id}: where packets were lost, held back, marked or sent again"
        yield DataTable(title, head, rows, "What happened to packets")


def _where(counted: Sequence[tuple[float, _Place]]) -> str:
    """The largest counters, with their nodes."""
    most = sorted(counted, key=lambda pair: -pair[0])[:_PLACES_SHOWN]
    more = len(counted) - len(most)
    said = [f"{node}: {count:,.0f} {counter}" for count, (node, counter) in most]
    return "; ".join(said) + (f"; and {more} more" if more else "")
