"""Figures of the sources, drawn again from what a run measured: same axes, same names of series."""

from __future__ import annotations

from rocelab.claims import SourceFigure, all_figures, claims_by_id
from rocelab.report import catalogue, figures
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import NODES, SIZES, Curves
from rocelab.report.gallery import Section, figure_of, metric_table, series_words
from rocelab.report.model import RunModel, StyledSeries
from rocelab.results import MESH_TEST
from rocelab.stats import Series, SeriesKey

_TEXT = (
    "The figures of the sources with their own axes and names, drawn from what was measured here. The scale of the "
    "values is that of this machine and its links; what can be compared is the shape."
)


def sections(model: RunModel) -> list[Section]:
    """One section, if the run measured anything that a figure of its sources shows."""
    sources = {claim.source.id for claim in claims_by_id(model.info.claims)}
    links = []
    styles: dict[str, SeriesStyle] = {}
    for number, wanted in enumerate(all_figures()):
        series = _series(model, wanted) if wanted.source.id in sources else []
        if not series:
            continue
        axis = NODES if wanted.test == MESH_TEST else SIZES
        curves = Curves(
            f"redrawn-{number}",
            wanted.title,
            wanted.source.title,
            figures.metric_rows(series, positive=wanted.log),
            [each.style for each in series],
            series[0].series.unit,
            wanted.y_title,
            log=wanted.log,
            axis=axis,
            alternative=f"{wanted.text} {series_words(series, axis)}",
        )
        caption = f"{wanted.id} of the source, {wanted.title}: median (smallest to largest)"
        table = metric_table(caption, "Values as a table", series, axis)
        styles.update({each.label: each.style for each in series})
        links.append((f"{wanted.id}: {wanted.text}", (figure_of(curves, (table,)),)))
    return [Section("redrawn", "Figures of the study", _TEXT, tuple(links), tuple(styles.values()))] if links else []


def _series(model: RunModel, wanted: SourceFigure) -> list[StyledSeries]:
    """The lines of a figure that the run has, in the looks of their place in it."""
    found = []
    for line, (colour, shape, dash) in zip(wanted.series, catalogue.FIGURE_LOOKS, strict=False):
        key = SeriesKey(line.link, wanted.level, wanted.test, line.interconnect, line.variant, wanted.metric)
        series = model.series_of(key)
        if series is not None:
            shown = bandwidth_of(series) if wanted.shown == "bandwidth" else series
            found.append(StyledSeries(shown, SeriesStyle(line.name, colour, shape, dash)))
    return found


def bandwidth_of(series: Series) -> Series:
    """Size over time in 10^6 bit/s, of a series of times in microseconds."""
    values = {size: tuple(size * 8 / each for each in times) for size, times in series.values.items()}
    return Series(series.key._replace(metric="bandwidth_mbps"), "Mbps", series.statistic, values)
