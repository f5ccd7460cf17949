"""How RoCE compares with iWARP, from a run that has both: a table for each link, with the best TCP beside them.

iWARP is over TCP, and like TCP it is taken under the congestion control that is best at each size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rocelab import peers
from rocelab.report.gallery import DataTable
from rocelab.report.model import RunModel, StyledSeries, best_at, link_title, speed_ratio
from rocelab.report.summary import CHOSEN_SIZES_BYTES, row_name, typical_words
from rocelab.results import LinkInfo
from rocelab.stats import NO_SIZE, text

_HEAD = ("Measurement", "Soft RoCE", "iWARP", "Best TCP", "Soft RoCE / iWARP", "iWARP / best TCP")
_NONE = "none"


def tables(model: RunModel) -> list[DataTable]:
    """One for each link over which both were measured: values, and how many times as good the first is."""
    found = [(link, tuple(_rows(model, link))) for link in model.links]
    return [
        DataTable(f"RoCE beside iWARP, {link_title(link)}. Ratios above 1\u00d7: the first is better", _HEAD, rows)
        for link, rows in found
        if rows
    ]


def _rows(model: RunModel, link: LinkInfo) -> Iterator[tuple[str, ...]]:
    for test in model.every_test:
        for size in (NO_SIZE, *CHOSEN_SIZES_BYTES):
            yield from _at(model, model.series(link.id, test), size, row_name(test, size))
    cpu = model.cpu(link.id, "us_per_mib")
    for size in CHOSEN_SIZES_BYTES:
        yield from _at(model, cpu, size, f"CPU time per MiB, {text.size(size)}")


def _at(model: RunModel, series: Sequence[StyledSeries], size: int, name: str) -> Iterator[tuple[str, ...]]:
    """A row for each variant that both have at a size."""
    roce, iwarp = _of(series, peers.SOFT_ROCE), _of(series, peers.SOFT_IWARP)
    tcps = model.references(list(series))
    for variant in (each for each in roce if each in iwarp):
        ours, theirs = roce[variant], iwarp[variant]
        best = (best_at(ours, size), best_at(theirs, size))
        if None in best:
            continue
        values = (typical_words(each, size) or _NONE for each in (*best, best_at(tcps, size)))
        shown = [f"{value}{_control(model, each)}" for value, each in zip(values, (*best, None), strict=True)]
        yield (f"{name}, {variant}", *shown, _ratio(ours, theirs, size), _ratio(theirs, tcps, size))


def _of(series: Sequence[StyledSeries], interconnect: str) -> dict[str, list[StyledSeries]]:
    """By variant, each congestion control that it was measured under."""
    found: dict[str, list[StyledSeries]] = {}
    for each in series:
        if each.series.key.interconnect == interconnect and not each.style.check:
            found.setdefault(peers.name_of(each.series.key.variant), []).append(each)
    return found


def _control(model: RunModel, series: StyledSeries | None) -> str:
    """Which congestion control a value was measured under, where it was chosen."""
    words = None if series is None else peers.control_words(series.series.key.variant, model.default_control)
    return "" if words is None else f", {words}"


def _ratio(subjects: Sequence[StyledSeries], references: Sequence[StyledSeries], size: int) -> str:
    found = speed_ratio(subjects, references, size)
    return _NONE if found is None else text.times_range(found.ratio)
