"""A figure of predictions against published values: each series' ratio over message size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

#: As wide as a page of text.
_WIDTH, _HEIGHT = 620, 300
_PARTS = ("held out", "fitted")


def validation_figure(points: Sequence[Mapping[str, object]]) -> dict[str, Any]:
    """The specification for Vega-Lite. A point has `part`, `metric`, `series`, `size_bytes` and `ratio`.

    `ratio` is predicted over published, so that what lies on 1 is right.
    """
    band = (
        alt.Chart(alt.InlineData([{"low": 0.85, "high": 1.15}]))
        .mark_rect(color="#e8eef4")
        .encode(y=alt.Y("low:Q"), y2="high:Q")
    )
    data = alt.InlineData([dict(point) for point in points])
    lines = (
        alt.Chart(data)
        .mark_line(point=alt.OverlayMarkDef(size=18), strokeWidth=1.2)
        .encode(
            x=alt.X("size_bytes:Q", scale=alt.Scale(type="log", base=2), title="message size, bytes"),
            y=alt.Y("ratio:Q", scale=alt.Scale(type="log"), title="predicted / published"),
            color=alt.Color("part:N", scale=alt.Scale(domain=list(_PARTS), range=["#c44e52", "#4c72b0"]), title=None),
            detail="series:N",
            tooltip=["series:N", "size_bytes:Q", alt.Tooltip("ratio:Q", format=".2f")],
        )
    )
    panels = [
        alt.layer(band, lines.transform_filter(alt.datum.metric == metric)).properties(
            width=_WIDTH, height=_HEIGHT, title=metric
        )
        for metric in ("latency", "bandwidth")
    ]
    spec: dict[str, Any] = alt.vconcat(*panels).to_dict()
    return spec
