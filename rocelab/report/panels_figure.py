"""A figure of panels: lines over a quantity, a row of panels for each statistic and a column for each setting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import title_of, with_data

#: Of all panels of a row together, and of each.
_WIDTH_PX, _HEIGHT_PX = 600, 150
_WIDTH_MIN_PX = 120
#: What the axis and the heading of a panel take.
_AROUND_PX = 34


@dataclass(frozen=True)
class Point:
    """A value with its range, in a panel."""

    series: str
    row: str
    column: str
    at: float
    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Panels:
    """What a figure of panels shows."""

    name: str
    """Of its files and of its place in the page."""
    title: str
    subtitle: str
    points: Sequence[Point]
    rows: Sequence[str]
    columns: Sequence[str]
    styles: Sequence[SeriesStyle]
    x_title: str
    y_title: str
    x_log: bool


def panels_height_px(shown: Panels) -> int:
    """Its height, with axes and headings."""
    return len(shown.rows) * (_HEIGHT_PX + _AROUND_PX) + _AROUND_PX


def _ticks(low: float, high: float) -> list[float]:
    """Lines of a logarithmic axis: 1, 3, 10, 30, ... or 1, 10, 100, ..., and few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 3) if high / low < 300 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps]


def _x_axis(shown: Panels) -> alt.Axis:
    at = sorted({point.at for point in shown.points})
    if shown.x_log:
        return alt.Axis(title=shown.x_title, format="~s", values=_ticks(at[0], at[-1]), labelOverlap="greedy")
    return alt.Axis(title=shown.x_title, format=",.6~g", values=at, labelOverlap="greedy", labelSeparation=4)


def panels_spec(shown: Panels, *, interactive: bool) -> dict[str, Any]:
    """Lines on a logarithmic axis that the panels of a row share, with the range of the repetitions."""
    labels = [style.label for style in shown.styles]
    legend = None if interactive else alt.Legend(title=None, orient="bottom", symbolOpacity=1, labelLimit=220)
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=labels, range=[style.colour for style in shown.styles]),
        legend=legend,
    )
    shape = alt.Shape(
        "series:N", scale=alt.Scale(domain=labels, range=[style.shape for style in shown.styles]), legend=legend
    )
    dash = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=labels, range=[list(style.dash) or [1, 0] for style in shown.styles]),
        legend=legend,
    )
    x = alt.X(
        "at:Q",
        scale=alt.Scale(type="log", nice=False, padding=6) if shown.x_log else alt.Scale(zero=False, padding=6),
        axis=_x_axis(shown),
    )
    y_scale = alt.Scale(type="log", nice=False, padding=6)
    ends = [end for point in shown.points for end in (point.low, point.high)]
    y_axis = alt.Axis(title=shown.y_title, format=",~g", values=_ticks(min(ends), max(ends)), labelOverlap="greedy")
    base = alt.Chart().encode(x=x, color=colour)
    if interactive:
        base = base.transform_filter("indexof(shown, datum.series) >= 0")
    told = [
        alt.Tooltip("series:N", title="Link"),
        alt.Tooltip("column:N", title="Setting"),
        alt.Tooltip("row:N", title="Statistic"),
        alt.Tooltip("at:Q", title=shown.x_title, format=",~g"),
        alt.Tooltip("words:N", title=shown.y_title),
    ]
    width = max(_WIDTH_MIN_PX, _WIDTH_PX // max(1, len(shown.columns)))
    layers = alt.layer(
        base.mark_rule(strokeWidth=4, opacity=0.35).encode(y=alt.Y("low:Q", scale=y_scale, axis=y_axis), y2="high:Q"),
        base.mark_line(strokeWidth=1.8).encode(y=alt.Y("value:Q", scale=y_scale), strokeDash=dash),
        base.mark_point(size=34, filled=True, opacity=1).encode(
            y=alt.Y("value:Q", scale=y_scale), shape=shape, tooltip=told
        ),
        data=alt.NamedData("points"),
    ).properties(width=width, height=_HEIGHT_PX)
    heading = alt.Header(title=None, labelFontSize=12)
    above = alt.Header(title=None, labelFontSize=12, labels=len(shown.columns) > 1)
    chart = layers.facet(
        row=alt.Row("row:N", sort=list(shown.rows), header=heading),
        column=alt.Column("column:N", sort=list(shown.columns), header=above),
        spacing=12,
    )
    points = [
        {
            "series": point.series,
            "row": point.row,
            "column": point.column,
            "at": point.at,
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "words": point.words,
        }
        for point in shown.points
    ]
    if not interactive:
        titled = chart.properties(title=title_of(shown.title, shown.subtitle))
        return with_data(titled.to_dict(validate=False), points=points)
    switches = alt.param(name="shown", value=labels)
    return with_data(chart.add_params(switches).to_dict(validate=False), points=points)
