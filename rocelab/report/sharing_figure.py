"""A figure of dots in rows: each row has a name, each dot a value with its range, and a band may say what is within."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import title_of, with_data

_DOT_PX: Final = 11
_ROW_MIN_PX: Final = 34
_BAND_COLOUR: Final = "#7d8590"
#: Above and below a value.
_STEPS: Final = (1, 2, 5)


@dataclass(frozen=True)
class Dot:
    """A median with its range, and how it reads when pointed at."""

    row: str
    """Its name, each part of which, from ", " on, has a line of its own."""
    series: str
    place: int
    """Dots of a row with the same are at the same height, those with 0 at the top."""
    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Dots:
    """What a figure of dots shows."""

    title: str
    subtitle: str
    dots: Sequence[Dot]
    styles: tuple[SeriesStyle, ...]
    axis_title: str
    band: tuple[float, float] | None
    """What lies between these is within."""


def _rows(shown: Dots) -> list[str]:
    return list(dict.fromkeys(dot.row for dot in shown.dots))


def dots_height_px(shown: Dots) -> int:
    """As much as its rows need."""
    return len(_rows(shown)) * max(_ROW_MIN_PX, (_most(shown) + 1) * _DOT_PX)


def _most(shown: Dots) -> int:
    """How many places a row has."""
    return max((dot.place for dot in shown.dots), default=0) + 1


def _centred(shown: Dots) -> list[int]:
    """The place of each dot so that those of each row are in its middle."""
    last = {row: max(dot.place for dot in shown.dots if dot.row == row) for row in _rows(shown)}
    return [dot.place + (_most(shown) - 1 - last[dot.row]) // 2 for dot in shown.dots]


def _ticks(ends: Sequence[float]) -> list[float]:
    decades = range(math.floor(math.log10(min(ends))) - 1, math.ceil(math.log10(max(ends))) + 1)
    return [step * 10.0**decade for decade in decades for step in _STEPS]


def dots_spec(shown: Dots, *, interactive: bool) -> dict[str, Any]:
    """Dots at the medians, and lines over the range of the repetitions."""
    labels = [style.label for style in shown.styles]
    legend = (
        None if interactive else alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, labelLimit=260)
    )
    colours = alt.Scale(domain=labels, range=[style.colour for style in shown.styles])
    shapes = alt.Scale(domain=labels, range=[style.shape for style in shown.styles])
    axis = alt.Axis(title=None, labelExpr="split(datum.label, ', ')", labelLimit=230, ticks=False, domain=False)
    places = list(range(_most(shown)))
    base = alt.Chart(alt.NamedData("points")).encode(
        y=alt.Y("row:N", sort=_rows(shown), axis=axis, scale=alt.Scale(paddingInner=0.25)),
        yOffset=alt.YOffset("place:N", sort=places, scale=alt.Scale(domain=places)),
        color=alt.Color("series:N", scale=colours, legend=legend),
        tooltip=[
            alt.Tooltip("row:N", title="Flows at once"),
            alt.Tooltip("series:N", title="Of"),
            alt.Tooltip("words:N", title=shown.axis_title),
        ],
    )
    band = shown.band or ()
    ends = [*band, *(end for dot in shown.dots for end in (dot.low, dot.high) if end > 0)] or [1.0]
    scale = alt.Scale(type="log", nice=False, padding=12)
    x_axis = alt.Axis(title=shown.axis_title, format=",~g", values=_ticks(ends), labelOverlap="greedy")
    layers: list[alt.Chart] = []
    if band:
        frame = alt.Chart(alt.NamedData("band"))
        layers.append(
            frame.mark_rect(color=_BAND_COLOUR, opacity=0.18).encode(
                x=alt.X("low:Q", scale=scale, axis=x_axis), x2="high:Q"
            )
        )
    layers += [
        base.mark_rule(strokeWidth=4, opacity=0.4).encode(x=alt.X("low:Q", scale=scale, axis=x_axis), x2="high:Q"),
        base.mark_point(size=45, filled=True, opacity=1).encode(
            x=alt.X("value:Q", scale=scale), shape=alt.Shape("series:N", scale=shapes, legend=legend)
        ),
    ]
    points = [
        {
            "row": dot.row,
            "series": dot.series,
            "place": place,
            "value": dot.value,
            "low": dot.low,
            "high": dot.high,
            "words": dot.words,
        }
        for dot, place in zip(shown.dots, _centred(shown), strict=True)
    ]
    datasets: dict[str, list[dict[str, Any]]] = {"points": points}
    if band:
        datasets["band"] = [{"low": band[0], "high": band[1]}]
    size: dict[str, Any] = {"height": dots_height_px(shown), "width": "container" if interactive else 600}
    chart = alt.layer(*layers).properties(**size)
    if not interactive:
        chart = chart.properties(title=title_of(shown.title, shown.subtitle))
    return with_data(chart.to_dict(validate=False), **datasets)
