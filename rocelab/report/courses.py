"""The section on the course of simulations: queues, pauses, notifications and rates over simulated time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rocelab.report import catalogue
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import Axis, Curves, Row
from rocelab.report.gallery import Figure, Section, figure_of
from rocelab.report.model import RunModel, link_title
from rocelab.results import LinkInfo, Sample
from rocelab.stats import text

_TEXT = (
    "What happened inside simulations, over simulated time: the longest queue of any switch port, the part of the "
    "time that the ports of hosts were paused, congestion notifications, and the data that arrived at all hosts "
    "together."
)
_TIME = Axis("Simulated time, \u00b5s", "Time", str, log=False)

Point = Mapping[str, Any]


@dataclass(frozen=True)
class _Quantity:
    """Something that is noted over time."""

    name: str
    title: str
    axis_title: str
    unit: str
    of: Callable[[Point], float]


_QUANTITIES = (
    _Quantity("throughput", "Throughput", "Data that arrives", "Mbps", lambda point: 1000 * point["throughput_gbps"]),
    _Quantity("queue", "Longest queue", "KB", "KB", lambda point: point["queue_bytes"] / 1000),
    _Quantity("paused", "Paused", "Part of the time, %", "%", lambda point: 100 * point["paused_part"]),
    _Quantity(
        "notifications", "Congestion notifications", "CNPs since before", "", lambda point: point["notifications"]
    ),
)


def sections(model: RunModel, folder: Path) -> list[Section]:
    """One section, if simulations of the run noted their course."""
    links = tuple((link_title(link), made) for link in model.links if (made := tuple(_figures(model, link, folder))))
    return [Section("course", "The course of simulations", _TEXT, links, ())] if links else []


def _figures(model: RunModel, link: LinkInfo, folder: Path) -> Iterator[Figure]:
    noted: dict[tuple[str, str], Sample] = {}
    for sample in model.samples:
        if sample.link == link.id and sample.params.get("series") and sample.log and sample.repetition == 0:
            scale = text.plural(sample.nodes, "server")
            noted.setdefault((sample.test, f"{sample.interconnect} {sample.variant}, {scale}"), sample)
    for test in dict.fromkeys(name for name, _ in noted):
        lines = [(label, sample) for (name, label), sample in noted.items() if name == test]
        lines = lines[-len(catalogue.FIGURE_LOOKS) :]
        courses = [(label, _points(folder, sample)) for label, sample in lines]
        for quantity in _QUANTITIES:
            yield _figure(link, test, quantity, courses)


def _points(folder: Path, sample: Sample) -> Sequence[Point]:
    try:
        outcome = json.loads((folder / str(sample.log)).read_text(encoding="utf-8"))["outcome"]
        points: Sequence[Point] = outcome["series"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()
    return points


def _figure(link: LinkInfo, test: str, quantity: _Quantity, courses: Sequence[tuple[str, Sequence[Point]]]) -> Figure:
    rows, styles = [], []
    for (label, points), (colour, shape, dash) in zip(courses, catalogue.FIGURE_LOOKS, strict=False):
        styles.append(SeriesStyle(label, colour, shape, dash))
        for point in points:
            value = quantity.of(point)
            words = f"{value:,.4g} {quantity.unit}".strip()
            rows.append(Row(label, point["at_ns"] // 1000, value, value, value, words))
    most = max((row.value for row in rows), default=0.0)
    curves = Curves(
        f"course-{test}-{quantity.name}-{link.id}",
        quantity.title,
        f"{test}, {link_title(link)}",
        rows,
        styles,
        quantity.unit,
        quantity.axis_title,
        log=False,
        height_px=200,
        axis=_TIME,
        alternative=f"At most {most:,.4g} {quantity.unit}".strip() + ".",
    )
    return figure_of(curves, (), tuple(styles))
