"""The figure of all pairs: a cell for each, coloured by what it has relative to what all have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from rocelab.report.figures import BETTER_COLOUR, UNCLEAR_COLOUR, WORSE_COLOUR, title_of, with_data

CELL_MIN_PX = 8
_CELL_MAX_PX = 28
_SIDE_MAX_PX = 520
#: Full colour from half and from twice of what all have; grey in between, where nodes differ as
#: nodes do.
_DOMAIN = (0.5, 0.9, 1.1, 2.0)


@dataclass(frozen=True)
class Cell:
    """A pair."""

    row: str
    column: str
    ratio: float
    """To what all have; above one is better."""
    words: str


@dataclass(frozen=True)
class Map:
    """What a figure of all pairs shows."""

    name: str
    """Of its files and of its place in the page."""
    title: str
    subtitle: str
    nodes: Sequence[str]
    cells: Sequence[Cell]
    ends: tuple[str, str]
    """What the rows and the columns are."""


def map_height_px(shown: Map) -> int:
    """Its height without axis and title."""
    cell_px = max(CELL_MIN_PX, min(_CELL_MAX_PX, _SIDE_MAX_PX // max(1, len(shown.nodes))))
    return cell_px * len(shown.nodes)


def map_spec(shown: Map, *, interactive: bool) -> dict[str, Any]:
    """Orange where a pair is slower than all, blue where it is faster."""
    rows, columns = shown.ends
    nodes = list(shown.nodes)
    scale = alt.Scale(paddingInner=0.06)
    axis: dict[str, Any] = {
        "labelOverlap": "greedy",
        "grid": False,
        "ticks": False,
        "domain": False,
        "labelLimit": 160,
    }
    legend = alt.Legend(
        title="Of what all have", orient="bottom", format="%", gradientLength=220, values=[0.5, 1, 1.5, 2]
    )
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("points"))
        .mark_rect(cornerRadius=1)
        .encode(
            x=alt.X("column:N", sort=nodes, title=columns, axis=alt.Axis(labelAngle=-45, **axis), scale=scale),
            y=alt.Y("row:N", sort=nodes, title=rows, axis=alt.Axis(**axis), scale=scale),
            color=alt.Color(
                "ratio:Q",
                scale=alt.Scale(
                    type="linear",
                    domain=list(_DOMAIN),
                    range=[WORSE_COLOUR, UNCLEAR_COLOUR, UNCLEAR_COLOUR, BETTER_COLOUR],
                    clamp=True,
                    interpolate="rgb",
                ),
                legend=legend,
            ),
            tooltip=[
                alt.Tooltip("row:N", title=rows),
                alt.Tooltip("column:N", title=columns),
                alt.Tooltip("words:N", title="Measured"),
                alt.Tooltip("ratio:Q", title="Of what all have", format=".0%"),
            ],
        )
    )
    points = [
        {"row": cell.row, "column": cell.column, "ratio": round(cell.ratio, 4), "words": cell.words}
        for cell in shown.cells
    ]
    height = map_height_px(shown)
    if interactive:
        return with_data(chart.properties(width="container", height=height).to_dict(validate=False), points=points)
    title = title_of(shown.title, shown.subtitle)
    return with_data(chart.properties(width=600, height=height, title=title).to_dict(validate=False), points=points)
