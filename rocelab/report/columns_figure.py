"""The figure of values that belong to no message size: columns side by side, for each number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import title_of, value_axis, with_data

HEIGHT_PX = 240
#: Of a column; and what all of them may take together, on a narrow page.
_WIDTH_MIN_PX, _WIDTH_MAX_PX, _ROOM_PX = 4, 48, 320


@dataclass(frozen=True)
class Column:
    """A median with its range, and how it reads when pointed at."""

    series: str
    group: str
    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Columns:
    """What a figure of columns shows."""

    name: str
    """Of its files and of its place in the page."""
    title: str
    subtitle: str
    columns: Sequence[Column]
    groups: Sequence[str]
    """What the columns stand over, from left to right."""
    styles: Sequence[SeriesStyle]
    unit: str
    axis_title: str


def columns_spec(shown: Columns, *, interactive: bool) -> dict[str, Any]:
    """A column from zero to each median, with a line over its range."""
    labels = [style.label for style in shown.styles]
    legend = (
        None if interactive else alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, labelLimit=220)
    )
    axis = alt.Axis(title="Processes", labelAngle=0, grid=False, labelOverlap="greedy")
    width_px = max(_WIDTH_MIN_PX, min(_WIDTH_MAX_PX, _ROOM_PX // max(1, len(shown.groups) * len(labels))))
    base = alt.Chart(alt.NamedData("points")).encode(
        x=alt.X("group:O", sort=list(shown.groups), axis=axis, scale=alt.Scale(paddingInner=0.3)),
        xOffset=alt.XOffset("series:N", sort=labels, scale=alt.Scale(domain=labels)),
        color=alt.Color(
            "series:N",
            scale=alt.Scale(domain=labels, range=[style.colour for style in shown.styles]),
            legend=legend,
        ),
        tooltip=[alt.Tooltip("group:N", title="Processes"), alt.Tooltip("series:N"), alt.Tooltip("words:N")],
    )
    if interactive:
        base = base.transform_filter("indexof(shown, datum.series) >= 0")
    y = value_axis(shown.unit, shown.axis_title if not interactive else None)
    chart = alt.layer(
        base.mark_bar(opacity=0.75, size=width_px).encode(y=alt.Y("value:Q", axis=y)),
        # In the colour of the text of either scheme, for it has to stand out from its column.
        base.mark_rule(strokeWidth=2).encode(y="low:Q", y2="high:Q", color=alt.value("#7d8590")),
    )
    points = [
        {"series": at.series, "group": at.group, "value": at.value, "low": at.low, "high": at.high, "words": at.words}
        for at in shown.columns
    ]
    if not interactive:
        title = title_of(shown.title, shown.subtitle)
        return with_data(
            chart.properties(width=600, height=HEIGHT_PX + 20, title=title).to_dict(validate=False), points=points
        )
    switches = alt.param(name="shown", value=labels)
    filled = chart.add_params(switches).properties(width="container", height=HEIGHT_PX)
    return with_data(filled.to_dict(validate=False), points=points)
