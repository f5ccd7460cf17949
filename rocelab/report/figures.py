"""The figures as altair charts. One builder serves the page (interactive) and the files (with a legend and a title)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import altair as alt

from rocelab.report.catalogue import BEST_TCP, BEST_WAITING, GROUP_STEP, SeriesStyle
from rocelab.report.model import SpeedRatio, StyledSeries
from rocelab.stats import Ratio, Side, text

SIZE_LABEL = (
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' Mi'"
    " : datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' Ki' : format(datum.value, '~g')"
)
_VALUE_LABELS = {
    "us": (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' s' : datum.value >= 1000"
        " ? format(datum.value / 1000, '~g') + ' ms' : format(datum.value, '~g') + ' \u00b5s'"
    ),
    "Mbps": (
        "datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' Gbps'"
        " : datum.value >= 1 ? format(datum.value, '~g') + ' Mbps' : format(datum.value * 1000, '~g') + ' kbps'"
    ),
    "us/MiB": (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' s'"
        " : datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' ms' : format(datum.value, '~g') + ' \u00b5s'"
    ),
    "1/s": (
        "datum.value >= 1e6 ? format(datum.value / 1e6, '~g') + ' M/s'"
        " : datum.value >= 1000 ? format(datum.value / 1000, '~g') + ' k/s' : format(datum.value, '~g') + '/s'"
    ),
    "times": "format(datum.value, '~g') + '\u00d7'",
}
RATIO_STYLES = {
    BEST_WAITING["polling"]: SeriesStyle(
        "against the best TCP that polls, as send does", "#b98200", "triangle-down", (2, 2)
    ),
    BEST_WAITING["blocking"]: SeriesStyle(
        "by events, against the best TCP that sleeps (both may look first)", "#dd5a26", "diamond", (6, 3)
    ),
    BEST_TCP: SeriesStyle("against the best TCP", "#c2479a", "circle"),
}
BETTER_COLOUR, WORSE_COLOUR, UNCLEAR_COLOUR = "#2383e2", "#dd5a26", "#8b949e"
_NARROW_RATIO_TICKS = [0.5, 0.6, 0.75, 0.9, 1, 1.1, 1.25, 1.5, 2, 3, 4, 6]
ROW_HEIGHT_PX = 30
_MANY = 4.0
"""From this factor on, the overview shows full colour."""


@dataclass(frozen=True)
class Axis:
    """What the values of a figure are drawn over."""

    title: str
    heading: str
    """Above such a value in a table."""
    name: Callable[[int], str]
    """Such a value in words."""
    log: bool
    labels: tuple[str, ...] = ()
    """Of an axis of names and not of values: the places 10, 20, ... have these, and lines between them mean nothing."""
    per_unit: int = 1
    """How many steps of the axis are one of what is written at it."""
    marks_values: bool = False
    """Of a logarithmic axis: whether every value that is drawn is written at it."""

    def between(self, one: int, other: int) -> float:
        """Where the axis has the middle of two values."""
        return math.sqrt(one * other) if self.log else (one + other) / 2


SIZES = Axis("Message size, bytes", "Message size", text.size, log=True)
PAIRS = Axis("Pairs at once", "Pairs", str, log=True, marks_values=True)
NODES = Axis("Number of servers", "Servers", str, log=False)
#: Time in tenths of a second.
TIME = Axis("Time", "Time", lambda at: f"{at / 10:.1f} s", log=False, per_unit=10)


def groups_axis(title: str, names: Sequence[str]) -> Axis:
    """An axis of names."""
    return Axis(title, title, lambda at: names[round(at / GROUP_STEP) - 1], log=False, labels=tuple(names))


def side_by_side(rows: Sequence[Row], labels: Sequence[str]) -> list[Row]:
    """Rows of an axis of names, so that no series covers another."""
    middle = (len(labels) - 1) / 2
    return [replace(row, at=row.at + round(2 * (labels.index(row.series) - middle))) for row in rows]


@dataclass(frozen=True)
class Row:
    """A value with its range at a size (or a number of nodes), and how it reads when pointed at."""

    series: str
    at: int
    value: float
    low: float
    high: float
    words: str


@dataclass(frozen=True)
class Curves:
    """What a figure of lines, over message size or another axis, shows."""

    name: str
    """Of its files and of its place in the page."""
    title: str
    subtitle: str
    rows: Sequence[Row]
    styles: Sequence[SeriesStyle]
    unit: str
    axis_title: str
    log: bool = True
    reference: tuple[float, str] | None = None
    """A horizontal line with its name, which may be empty."""
    height_px: int = 300
    axis: Axis = SIZES
    x_title: str = ""
    """In place of the title of the axis."""
    alternative: str = field(default="", kw_only=True)
    """What the figure shows, in words."""


def metric_rows(series: Sequence[StyledSeries], *, positive: bool) -> list[Row]:
    """The medians and ranges of series; ``positive`` leaves out what a logarithmic axis cannot show."""
    rows = []
    for each in series:
        for size, summary in each.series.spreads():
            if positive and summary.low <= 0:
                continue
            words = text.quantity_range(summary, each.series.unit)
            rows.append(Row(each.label, size, summary.typical, summary.low, summary.high, words))
    return rows


def ratio_rows(ratios: dict[str, list[SpeedRatio]]) -> list[Row]:
    """Ratios with their confidence intervals; a ratio without one has no width."""
    rows = []
    for name, points in ratios.items():
        for point in points:
            low, high = _interval(point.ratio)
            words = text.times_range(point.ratio)
            rows.append(Row(RATIO_STYLES[name].label, point.size_bytes, point.ratio.estimate, low, high, words))
    return rows


def _interval(ratio: Ratio) -> tuple[float, float]:
    return (
        ratio.estimate if ratio.low is None else ratio.low,
        ratio.estimate if ratio.high is None else ratio.high,
    )


def curves_spec(curves: Curves, *, interactive: bool) -> dict[str, Any]:
    """Lines with a band for the spread, over message size."""
    labels = [style.label for style in curves.styles]
    legend = (
        None if interactive else alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1, labelLimit=220)
    )
    colour = alt.Color(
        "series:N",
        scale=alt.Scale(domain=labels, range=[style.colour for style in curves.styles]),
        legend=legend,
    )
    shape = alt.Shape(
        "series:N", scale=alt.Scale(domain=labels, range=[style.shape for style in curves.styles]), legend=legend
    )
    dash = alt.StrokeDash(
        "series:N",
        scale=alt.Scale(domain=labels, range=[list(style.dash) or [1, 0] for style in curves.styles]),
        legend=legend,
    )
    base = alt.Chart(alt.NamedData("points")).encode(x=_size_axis(curves), color=colour)
    if interactive:
        base = base.transform_filter("indexof(shown, datum.series) >= 0")
    y = _value_axis(curves, "value", titled=not interactive)
    layers: list[alt.Chart] = [
        # Bars, not a band: nothing was measured between two sizes.
        base.mark_rule(strokeWidth=5, opacity=0.4, clip=True).encode(
            y=_value_axis(curves, "low", titled=not interactive), y2="high:Q"
        ),
        *([] if curves.axis.labels else [base.mark_line(strokeWidth=1.8).encode(y=y, strokeDash=dash)]),
        base.mark_point(size=30, filled=True, opacity=1).encode(y=y, shape=shape),
    ]
    if curves.reference is not None:
        layers += _reference_line(*curves.reference)
    if interactive:
        layers.append(_hover_strips(curves))
    chart = alt.layer(*layers)
    if not interactive:
        title = title_of(curves.title, curves.subtitle)
        spec = chart.properties(width=600, height=curves.height_px + 20, title=title).to_dict(validate=False)
        return with_data(spec, points=_points(curves))
    shown = alt.param(name="shown", value=labels)
    spec = chart.add_params(shown).properties(width="container", height=curves.height_px).to_dict(validate=False)
    return with_data(spec, points=_points(curves), by_size=_strips(curves))


def with_data(spec: dict[str, Any], **datasets: list[dict[str, Any]]) -> dict[str, Any]:
    """A chart with the values of its named data."""
    # Put in here and not in the chart, where altair would copy and check every value many times.
    return spec | {"datasets": spec.get("datasets", {}) | datasets}


def _points(curves: Curves) -> list[dict[str, Any]]:
    return [
        {"series": row.series, "size": row.at, "value": row.value, "low": row.low, "high": row.high}
        for row in curves.rows
    ]


def title_of(title: str, subtitle: str) -> alt.TitleParams:
    """The title of a figure that is a file."""
    return alt.TitleParams(title, subtitle=subtitle, anchor="start", fontSize=15, subtitleFontSize=12, offset=14)


def _size_axis(curves: Curves, field_name: str = "size") -> alt.X:
    sizes = [row.at for row in curves.rows]
    title = curves.x_title or curves.axis.title
    if curves.axis.labels:
        places = [GROUP_STEP * (at + 1) for at in range(len(curves.axis.labels))]
        words = f"{json.dumps(curves.axis.labels)}[datum.value / {GROUP_STEP} - 1]"
        ends = alt.Scale(domain=[GROUP_STEP / 2, places[-1] + GROUP_STEP / 2], nice=False)
        axis = alt.Axis(values=places, title=title, labelExpr=words, grid=False)
        return alt.X(f"{field_name}:Q", axis=axis, scale=ends)
    if curves.axis.per_unit != 1:
        label = f"format(datum.value / {curves.axis.per_unit}, '~g') + ' s'"
        return alt.X(
            f"{field_name}:Q", axis=alt.Axis(title=title, labelExpr=label, tickCount=8), scale=alt.Scale(zero=True)
        )
    if not curves.axis.log:
        values = sorted(set(sizes))
        linear = alt.Scale(domain=[min(sizes) - 0.5, max(sizes) + 0.5], nice=False)
        return alt.X(f"{field_name}:Q", axis=alt.Axis(values=values, title=title, format="d"), scale=linear)
    even = [1 << bit for bit in range(0, 41, 2) if min(sizes) <= 1 << bit <= max(sizes)]
    ticks = sorted(set(sizes)) if curves.axis.marks_values else even
    axis = alt.Axis(values=ticks, labelExpr=SIZE_LABEL, title=title, labelOverlap="greedy", labelSeparation=4)
    # 'nice' would round the domain up to the next power of ten.
    scale = alt.Scale(type="log", base=2, domain=[min(sizes), max(*sizes, min(sizes) * 2)], nice=False)
    return alt.X(f"{field_name}:Q", axis=axis, scale=scale)


def _value_axis(curves: Curves, field_name: str, *, titled: bool) -> alt.Y:
    options: dict[str, Any] = {}
    if curves.unit == "times":
        lowest, highest = _ratio_domain(curves.rows)
        scale = alt.Scale(type="log", base=2, nice=False, domain=[lowest, highest])
        options["values"] = _NARROW_RATIO_TICKS if highest / lowest < 10 else _log_ticks(lowest, highest)
    elif curves.log:
        lowest, highest = min(row.low for row in curves.rows), max(row.high for row in curves.rows)
        scale = alt.Scale(type="log", nice=False, padding=8)
        options["values"] = _log_ticks(lowest, highest)
    else:
        scale = alt.Scale(zero=True, nice=True)
        options["tickCount"] = 5
    axis = value_axis(curves.unit, curves.axis_title if titled else None, **options)
    return alt.Y(f"{field_name}:Q", axis=axis, scale=scale)


def value_axis(unit: str, title: str | None, **options: Any) -> alt.Axis:
    """An axis whose labels are in the unit."""
    label = _VALUE_LABELS.get(unit)
    if label is not None:
        options["labelExpr"] = label
    return alt.Axis(title=title, labelOverlap="greedy", minExtent=60, **options)


def _log_ticks(lowest: float, highest: float) -> list[float]:
    """1, 2, 5, 10, ... where few decades are shown, whole decades where many are."""
    decades = range(math.floor(math.log10(lowest)) - 1, math.ceil(math.log10(highest)) + 2)
    steps = (1, 2, 5) if highest / lowest < 3000 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps]


def _ratio_domain(rows: Sequence[Row]) -> tuple[float, float]:
    """Holds all medians and one; an interval far wider than that is cut, or it would flatten the rest."""
    values = [row.value for row in rows]
    lowest = max(min(row.low for row in rows), min(values) / 1.5)
    highest = min(max(row.high for row in rows), max(values) * 1.5)
    return min(lowest / 1.05, 0.7), max(highest * 1.05, 1.45)


def _reference_line(value: float, name: str) -> list[alt.Chart]:
    data = alt.InlineData(values=[{"at": value, "name": name}])
    line = alt.Chart(data).mark_rule(strokeDash=[4, 4], strokeWidth=1.5, color=UNCLEAR_COLOUR).encode(y="at:Q")
    words = (
        alt.Chart(data)
        .mark_text(align="left", baseline="bottom", dx=4, dy=-3, fontSize=11, color=UNCLEAR_COLOUR)
        .encode(y="at:Q", x=alt.value(0), text="name:N")
    )
    return [line, words]


def _hover_strips(curves: Curves) -> alt.Chart:
    """A strip around each size, over the whole height: pointed at, it shows the values of all series there.

    Vega-Lite's own nearest-point selection loses the values on the way to the tooltip (seen in 6.4).
    """
    pointed = alt.selection_point(
        name="pointed", on="pointerover", clear="pointerout", fields=["size"], empty=False, toggle=False
    )
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("by_size"))
        .mark_rect(color=UNCLEAR_COLOUR, clip=True, cursor="crosshair")
        .encode(
            x=_size_axis(curves, "from"),
            x2="to:Q",
            opacity=alt.condition(pointed, alt.value(0.18), alt.value(0)),
            tooltip=[alt.Tooltip(f"{field}:N", title=name) for name, field in _strip_fields(curves).items()],
        )
        .add_params(pointed)
    )
    return chart


def _strip_fields(curves: Curves) -> dict[str, str]:
    """What a strip shows, to the field that has it: Vega reads a quote or a dot in the name of a field as syntax."""
    names = dict.fromkeys([curves.axis.heading, *(row.series for row in curves.rows)])
    return {name: f"shown{number}" for number, name in enumerate(names)}


def _strips(curves: Curves) -> list[dict[str, Any]]:
    fields = _strip_fields(curves)
    axis = curves.axis
    sizes = sorted({row.at for row in curves.rows})
    strips: dict[int, dict[str, Any]] = {}
    for number, size in enumerate(sizes):
        before = sizes[number - 1] if number > 0 else size
        after = sizes[number + 1] if number + 1 < len(sizes) else size
        edges = {"from": axis.between(before, size), "to": axis.between(size, after)}
        strips[size] = {"size": size, fields[axis.heading]: axis.name(size), **edges}
    for row in curves.rows:
        strips[row.at][fields[row.series]] = row.words
    return list(strips.values())


@dataclass(frozen=True)
class Overview:
    """Soft RoCE against the best TCP: one row for each test and link, one cell for each size."""

    name: str
    title: str
    subtitle: str
    rows: Sequence[tuple[str, Sequence[SpeedRatio]]]


def overview_spec(overview: Overview, *, interactive: bool) -> dict[str, Any]:
    """A map in blue where Soft RoCE is better and in orange where TCP is."""
    cells = [_cell(name, point) for name, points in overview.rows for point in points]
    subject_label = overview.rows[0][1][0].subject.label
    sides = ["Soft RoCE is better", "no clear difference", "TCP is better"]
    legend = None if interactive else alt.Legend(title=None, orient="bottom")
    sizes = sorted({point.size_bytes for _, points in overview.rows for point in points})
    axis = alt.Axis(
        values=[size for size in sizes if size.bit_length() % 2 == 1],
        labelExpr=SIZE_LABEL,
        labelAngle=0,
        title="Message size, bytes",
        labelOverlap="greedy",
        labelSeparation=6,
        grid=False,
        ticks=False,
        domain=False,
    )
    chart: alt.Chart = (
        alt.Chart(alt.NamedData("points"))
        .mark_rect(cornerRadius=2)
        .encode(
            x=alt.X("size:O", axis=axis, scale=alt.Scale(paddingInner=0.08)),
            y=alt.Y(
                "row:N",
                sort=[name for name, _ in overview.rows],
                title=None,
                axis=alt.Axis(labelLimit=230, grid=False, ticks=False, domain=False),
                scale=alt.Scale(paddingInner=0.12),
            ),
            color=alt.Color(
                "side:N",
                scale=alt.Scale(domain=sides, range=[BETTER_COLOUR, UNCLEAR_COLOUR, WORSE_COLOUR]),
                legend=legend,
            ),
            opacity=alt.Opacity("strength:Q", scale=alt.Scale(domain=[0, 1], range=[0.35, 1]), legend=None),
            tooltip=[f"{name}:N" for name in ("Message size", "Speed ratio", subject_label, "Best TCP")],
        )
    )
    height = ROW_HEIGHT_PX * len(overview.rows)
    if interactive:
        return with_data(chart.properties(width="container", height=height).to_dict(validate=False), points=cells)
    title = title_of(overview.title, overview.subtitle)
    return with_data(chart.properties(width=600, height=height, title=title).to_dict(validate=False), points=cells)


def _cell(row: str, point: SpeedRatio) -> dict[str, Any]:
    subject, reference = point.subject.series, point.reference.series
    best = text.quantity_range(reference.spread(point.size_bytes), reference.unit)
    return {
        "row": row,
        "size": point.size_bytes,
        "value": point.ratio.estimate,
        "side": _side_words(point.ratio),
        "strength": _strength(point.ratio),
        "Message size": text.size(point.size_bytes),
        "Speed ratio": text.times_range(point.ratio),
        point.subject.label: text.quantity_range(subject.spread(point.size_bytes), subject.unit),
        "Best TCP": f"{best}, {point.reference.label}",
    }


def _side_words(ratio: Ratio) -> str:
    words = {Side.ABOVE: "Soft RoCE is better", Side.BELOW: "TCP is better", Side.UNCLEAR: "no clear difference"}
    return words[ratio.side]


def _strength(ratio: Ratio) -> float:
    if ratio.side is Side.UNCLEAR:
        return 0.0
    factor = max(ratio.estimate, 1 / ratio.estimate)
    return min(1.0, (factor - 1) / (_MANY - 1))
