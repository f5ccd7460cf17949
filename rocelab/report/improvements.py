"""The figures that sum a source up: what each step from one network to another improves, at every level."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from rocelab.claims import Improvement, Number, SummaryFigure, claims_by_id, improvements, summaries_of
from rocelab.report.catalogue import FIGURE_LOOKS, SeriesStyle
from rocelab.report.figures import title_of, with_data
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel

_ROW_PX: Final = 18
_GAP_PX: Final = 14
_SOURCE_COLOUR: Final = "#7d8590"
_TICKS: Final = (0, 2, 5, 10, 20, 30, 50, 75, 100, 150, 200, 300, 400)
_NONE: Final = "not in these runs"


@dataclass(frozen=True, slots=True)
class _Bar:
    """A bar of the source, and what the samples have in its place."""

    of: Improvement
    here: Number | None


def sections(model: RunModel) -> list[Section]:
    """One for each figure of which the run, and the one beside it, have at least a bar."""
    made = []
    for figure in summaries_of(claims_by_id(model.info.claims)):
        bars = [
            _Bar(bar, here) for bar, here in zip(figure.bars, improvements(figure.bars, model.samples), strict=True)
        ]
        if any(bar.here is not None for bar in bars):
            words = (
                "Columns are of this run, and of the one beside it; lines across them are what the source says. The "
                "axis is that of square roots, so that small improvements are seen."
            )
            drawn = (("All levels", (_draw(figure, bars),)),)
            made.append(Section(f"summary-{figure.source.id}", f"{figure.title}, {figure.source.id}", words, drawn, ()))
    return made


def _draw(figure: SummaryFigure, bars: Sequence[_Bar]) -> Figure:
    pairs = list(dict.fromkeys(bar.of.pair for bar in bars))
    styles = tuple(SeriesStyle(pair, *look) for pair, look in zip(pairs, FIGURE_LOOKS, strict=False))
    levels = list(dict.fromkeys(bar.of.level for bar in bars))
    height_px = len(levels) * (len(pairs) * _ROW_PX + _GAP_PX)
    rows = tuple((f"{bar.of.level}, {bar.of.pair}", f"{bar.of.percent:g} %", _words(bar.here)) for bar in bars)
    table = DataTable(f"{figure.title}: improvements", ("Level, networks", "Source", "Here"), rows, "Values as a table")
    said = "; ".join(f"{name}: {here}, in the source {source}" for name, source, here in rows)
    return Figure(
        f"{figure.source.id}-{figure.id}",
        figure.title,
        figure.text,
        f"{figure.title}. {said}.",
        _spec(figure, bars, styles, levels, height_px, interactive=True),
        _spec(figure, bars, styles, levels, height_px, interactive=False),
        (table,),
        height_px + 50,
        styles,
        tuple(pairs),
    )


def _words(number: Number | None) -> str:
    return _NONE if number is None else f"{number.words(lambda each: f'{each:.0f}')} %"


def _spec(
    figure: SummaryFigure,
    bars: Sequence[_Bar],
    styles: Sequence[SeriesStyle],
    levels: Sequence[str],
    height_px: int,
    *,
    interactive: bool,
) -> dict[str, Any]:
    labels = [style.label for style in styles]
    legend = None if interactive else alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1)
    base = alt.Chart(alt.NamedData("points")).encode(
        y=alt.Y("level:N", sort=list(levels), title=None, axis=alt.Axis(grid=False, labelLimit=140)),
        yOffset=alt.YOffset("pair:N", sort=labels, scale=alt.Scale(domain=labels)),
        tooltip=[
            alt.Tooltip("level:N", title="Level"),
            alt.Tooltip("pair:N", title="Networks"),
            alt.Tooltip("words:N", title="Here"),
            alt.Tooltip("claimed:N", title="Source"),
        ],
    )
    scale = alt.Scale(type="sqrt", zero=True)
    x = alt.X("here:Q", scale=scale, axis=alt.Axis(values=list(_TICKS), title="Improvement (%)"))
    colours = alt.Scale(domain=labels, range=[style.colour for style in styles])
    chart = alt.layer(
        base.transform_filter("isValid(datum.here)")
        .mark_bar(opacity=0.75, size=_ROW_PX - 5)
        .encode(x=x, color=alt.Color("pair:N", scale=colours, legend=legend)),
        base.mark_tick(thickness=3, size=_ROW_PX - 1, color=_SOURCE_COLOUR).encode(x=alt.X("source:Q", scale=scale)),
    )
    points = [
        {
            "level": bar.of.level,
            "pair": bar.of.pair,
            "here": None if bar.here is None else round(bar.here.estimate, 2),
            "source": bar.of.percent,
            "words": _words(bar.here),
            "claimed": f"{bar.of.percent:g} %",
        }
        for bar in bars
    ]
    if interactive:
        return with_data(chart.properties(width="container", height=height_px).to_dict(validate=False), points=points)
    title = title_of(figure.title, figure.text)
    return with_data(chart.properties(width=600, height=height_px, title=title).to_dict(validate=False), points=points)
