"""The section on meshes: what all nodes move together as their number grows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocelab.claims import linearity
from rocelab.report import catalogue, figures
from rocelab.report.catalogue import MESH_RATE_STYLE, Mesh
from rocelab.report.figures import NODES, Curves, Row
from rocelab.report.gallery import DataTable, Figure, Section, figure_of, series_words
from rocelab.report.model import RunModel, StyledSeries, link_title
from rocelab.results import LinkInfo
from rocelab.stats import text

_TEXT = (
    "Every server sends to every other at the same time; drawn is what all of them receive together. The dashed line "
    "is what their cables would carry. Linearity is what was measured over the number of servers times the throughput "
    "of one, which is taken from the smallest mesh."
)


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has meshes."""
    links = tuple((link_title(link), made) for link in model.links if (made := tuple(_figures(model, link))))
    shown = {label for _, made in links for figure in made for label in figure.labels}
    styles = (*model.styles, MESH_RATE_STYLE)
    found = Section("mesh", "Full mesh", _TEXT, links, tuple(style for style in styles if style.label in shown))
    return [found] if links else []


def tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """The throughput of the meshes of a link, by number of servers."""
    return [_table(model, link, mesh, series) for mesh in catalogue.MESHES if (series := model.mesh(link.id, mesh))]


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
        rows += [_rate_row(nodes, nodes * link.rate_mbps) for nodes in sorted({row.at for row in rows})]
    curves = Curves(
        f"mesh-{mesh.level}-{link.id}",
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
    return figure_of(curves, (_table(model, link, mesh, series),))


def _rate_row(nodes: int, total_mbps: float) -> Row:
    return Row(MESH_RATE_STYLE.label, nodes, total_mbps, total_mbps, total_mbps, text.quantity(total_mbps, "Mbps"))


def _table(model: RunModel, link: LinkInfo, mesh: Mesh, series: Sequence[StyledSeries]) -> DataTable:
    head = [NODES.heading]
    for each in series:
        head += [f"{each.label}: total", "per server (lowest to highest)", "linearity"]
    counts = sorted({nodes for each in series for nodes in each.series.sizes})
    rows = tuple((str(nodes), *(cell for each in series for cell in _cells(model, each, nodes))) for nodes in counts)
    return DataTable(f"{mesh.title}, {link.id}: median (smallest to largest)", tuple(head), rows, "Values as a table")


def _cells(model: RunModel, each: StyledSeries, nodes: int) -> tuple[str, str, str]:
    if nodes not in each.series.values:
        return ("none", "none", "none")
    total = each.series.spread(nodes)
    per_node = text.quantity(total.typical / nodes, each.series.unit)
    key = each.series.key._replace(metric="node_throughput_mbps")
    ends = [model.series_of(key, statistic) for statistic in ("min", "max")]
    if all(end is not None and nodes in end.values for end in ends):
        low, high = (text.quantity(end.spread(nodes).typical, end.unit) for end in ends if end is not None)
        per_node += f" ({low} to {high})"
    share = linearity(each.series)[nodes]
    return (text.quantity_range(total, each.series.unit), per_node, f"{100 * share:.0f} %")
