"""The figures of the sources, drawn again from what a run measured: same axes, same names."""

from __future__ import annotations

from collections.abc import Iterator

from rocelab.claims import SourceFigure
from rocelab.report import figures
from rocelab.report.figures import NODES, SIZES, TIME, Axis, Curves, groups_axis
from rocelab.report.gallery import Figure, Section, figure_of, metric_table, series_words
from rocelab.report.model import RunModel, StyledSeries, link_title
from rocelab.results import runs_over_nodes


def sections(model: RunModel) -> list[Section]:
    """One section for each source of the claims that are judged, if the run measured what a figure of it shows."""
    made = []
    for source in dict.fromkeys(figure.source.id for figure in model.source_figures):
        wanted = [figure for figure in model.source_figures if figure.source.id == source]
        columns = [("The links of the study", tuple(_across_links(model, wanted)))]
        columns += [
            (link_title(link), tuple(_on_link(model, link.id, link_title(link), wanted))) for link in model.links
        ]
        shown = tuple((title, drawn) for title, drawn in columns if drawn)
        if shown:
            words = f"The axes and the names are those of “{wanted[0].source.title}”, the values are of this run."
            made.append(Section(f"source-{source}", f"The figures of {source}, drawn again", words, shown, ()))
    return made


def _across_links(model: RunModel, wanted: list[SourceFigure]) -> Iterator[Figure]:
    """The figures whose lines are of links that they name."""
    for figure in wanted:
        if figure.over_time:
            yield from _over_time(model, figure)
        elif figure.across_links and (lines := model.source_lines_across(figure)):
            yield _draw(figure, lines, f"{figure.source.id}-{figure.id}", figure.text)


def _on_link(model: RunModel, link: str, link_words: str, wanted: list[SourceFigure]) -> Iterator[Figure]:
    for figure in wanted:
        for scale in () if figure.across_links else model.scales(figure):
            nodes, ranks = scale
            if lines := model.source_lines(link, figure, scale):
                name = f"{figure.source.id}-{figure.id}-{nodes}-{ranks}-{link}"
                yield _draw(figure, lines, name, f"{link_words}, {ranks} processes on {nodes} nodes")


def _draw(figure: SourceFigure, lines: list[StyledSeries], name: str, subtitle: str) -> Figure:
    axis = _axis(figure)
    rows = figures.metric_rows(lines, positive=figure.log)
    curves = Curves(
        name,
        figure.title,
        subtitle,
        figures.side_by_side(rows, [each.label for each in lines]) if figure.groups else rows,
        [each.style for each in lines],
        figure.unit,
        figure.y_title,
        figure.log,
        axis=axis,
        x_title=figure.x_title,
        alternative=series_words(lines, axis),
    )
    table = metric_table(f"{figure.title}, {subtitle}", "Values as a table", lines, axis)
    return figure_of(curves, (table,), tuple(curves.styles))


def _axis(figure: SourceFigure) -> Axis:
    if figure.groups:
        return groups_axis(figure.x_title, [group.name for group in figure.groups])
    if figure.over_time:
        return TIME
    return NODES if runs_over_nodes(figure.level, figure.test) else SIZES


def _over_time(model: RunModel, figure: SourceFigure) -> Iterator[Figure]:
    """A figure for each line of the source's: here it is several, one for each node."""
    for at, line in enumerate(figure.series):
        if lines := model.over_time(figure, line):
            title = figure.model_copy(update={"title": f"{figure.title}, {line.name}"})
            yield _draw(title, lines, f"{figure.source.id}-{figure.id}-{at + 1}", figure.text)
