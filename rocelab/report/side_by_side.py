"""The section on many programs at once between two nodes: what they move together as their number grows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rocelab import peers
from rocelab.report import catalogue, figures
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import PAIRS, Curves, Row
from rocelab.report.gallery import DataTable, Figure, Section, figure_of, series_words
from rocelab.report.model import RunModel, StyledSeries, link_title
from rocelab.results import PAIR_METRIC, QUEUE_PAIRS_SETTING, SIDE_BY_SIDE_TEST, LinkInfo, Sample
from rocelab.stats import Series, SeriesKey, spread, text
from rocelab.variants import SETTINGS_MARK, settings_of

_TEXT: Final = (
    "Pairs of programs at the same time, from one server to another. Drawn is what all of them move together while "
    "all of them run. A dotted line is the ideal, which grows as the processors in use do: from what the fewest pairs "
    "have. Efficiency is what was measured over that. With processors of their own, each program is pinned to a "
    "processor that no other has; second threads of cores come last. One program is one pair of programs with so many "
    "queue pairs, on one processor at each end."
)
_WHERE: Final = {"own": "processors of their own", "shared": "one processor for all programs of a server"}
#: Up to this size, what counts is the number of messages.
_COUNTED_UP_TO_BYTES: Final = 4096
_TOTALS: Final = (("message_rate_per_s", "1/s"), ("throughput_mbps", "Mbps"))
_IDEAL_DASH: Final = (1, 3)

#: By number of pairs, the value of each repetition.
_Values = Mapping[int, tuple[float, ...]]


@dataclass(frozen=True)
class _Size:
    """What was measured with messages of one size on a link."""

    link: LinkInfo
    size_bytes: int
    processors: str
    series: tuple[StyledSeries, ...]
    """By number of pairs, what all moved together."""
    ends: Mapping[str, tuple[_Values, _Values]]
    """By the label of a series, the least and the most that a pair had, in Mbps."""
    cores: Mapping[int, int]
    """By number of pairs with processors of their own, on how many cores those are, where fewer than processors."""

    @property
    def is_counted(self) -> bool:
        """Whether it is drawn as messages per second."""
        return self.size_bytes <= _COUNTED_UP_TO_BYTES

    @property
    def title(self) -> str:
        what = "Messages per second" if self.is_counted else "Throughput"
        where = ", on shared processors" if self.processors == "shared" else ""
        return f"{what} of programs side by side{where}, {text.size(self.size_bytes)}"

    @property
    def grows(self) -> bool:
        """Whether there is more than one point of any series."""
        return any(len(each.series.values) > 1 for each in self.series)


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has programs side by side, or had too few processors for them."""
    notes = tuple(_notes(model))
    sizes = [(link, list(_sizes(model, link))) for link in model.links]
    drawn = [(link, tuple(_figure(each) for each in found if each.grows)) for link, found in sizes]
    links = tuple((link_title(link), made) for link, made in drawn if made)
    # A table that stands alone is called what it is of.
    tables = tuple(replace(_table(each), label="") for _, found in sizes for each in found if not each.grows)
    if not links and not tables and not notes:
        return []
    shown = {label for _, made in links for figure in made for label in figure.labels}
    every = {style.label: style for _, found in sizes for each in found for style in _styles(each)}
    ordered = sorted(every.values(), key=lambda style: style.dash == _IDEAL_DASH)
    styles = tuple(style for style in ordered if style.label in shown)
    return [Section(SIDE_BY_SIDE_TEST, "Many programs at once", _TEXT, links, styles, tables, notes)]


def tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """What all moved together on a link by their number, a table for each size; none without such a test."""
    return [_table(each) for each in _sizes(model, link)]


def _notes(model: RunModel) -> Iterator[str]:
    """What was left out, as the run says it."""
    start = f"{SIDE_BY_SIDE_TEST}: "
    for note in model.info.provenance.notes:
        if note.startswith(start):
            yield note.removeprefix(start)


def _sizes(model: RunModel, link: LinkInfo) -> Iterator[_Size]:
    """Each size that was measured, with what had values."""
    samples: dict[int, list[Sample]] = defaultdict(list)
    for sample in model.samples:
        is_of_test = (sample.link, sample.level, sample.test) == (link.id, "network", SIDE_BY_SIDE_TEST)
        if is_of_test and sample.value is not None and sample.size_bytes is not None:
            samples[sample.size_bytes].append(sample)
    return (_size(model, link, size_bytes, samples[size_bytes]) for size_bytes in sorted(samples))


def _size(model: RunModel, link: LinkInfo, size_bytes: int, samples: Sequence[Sample]) -> _Size:
    metric, unit = _TOTALS[0 if size_bytes <= _COUNTED_UP_TO_BYTES else 1]
    found: dict[tuple[str, str], dict[tuple[str, str], dict[int, list[float]]]] = {}
    for sample in samples:
        assert sample.value is not None
        of_kind = found.setdefault((sample.interconnect, _without_settings(sample.variant)), {})
        of_kind.setdefault((sample.metric, sample.statistic), {}).setdefault(_pairs(sample), []).append(sample.value)
    series: list[StyledSeries] = []
    ends: dict[str, tuple[_Values, _Values]] = {}
    for name, variant in sorted(found, key=lambda kind: catalogue.series_rank(*kind)):
        values = {
            what: {pairs: tuple(each) for pairs, each in sorted(by_pairs.items())}
            for what, by_pairs in found[name, variant].items()
        }
        style = catalogue.series_style(name, variant, len(series), model.default_control)
        key = SeriesKey(link.id, "network", SIDE_BY_SIDE_TEST, name, variant, metric)
        series.append(StyledSeries(Series(key, unit, "total", values[metric, "total"]), style))
        ends[style.label] = values[PAIR_METRIC, "min"], values[PAIR_METRIC, "max"]
    processors = str(samples[0].params.get("processors", ""))
    return _Size(link, size_bytes, processors, tuple(series), ends, _fewer_cores(samples))


def _fewer_cores(samples: Sequence[Sample]) -> dict[int, int]:
    found = {}
    for sample in samples:
        cores = sample.params.get("cores")
        if isinstance(cores, int) and sample.params.get("processors") == "own" and cores < sample.ranks:
            found[sample.ranks // 2] = cores
    return found


def _without_settings(variant: str) -> str:
    control = peers.control_of(variant)
    name, _, _ = peers.name_of(variant).partition(SETTINGS_MARK)
    return name if control is None else peers.with_control(name, control)


def _pairs(sample: Sample) -> int:
    """How many pairs ran: of programs, or of queues of one program."""
    settings = settings_of(peers.name_of(sample.variant))
    return int(settings[QUEUE_PAIRS_SETTING]) if QUEUE_PAIRS_SETTING in settings else sample.ranks // 2


def _is_one_program(each: StyledSeries) -> bool:
    return peers.name_of(each.series.key.variant).endswith(peers.ONE_PROGRAM)


def _ideal(found: _Size, each: StyledSeries) -> dict[int, float]:
    """By number of pairs, what they would move if each processor did as much as with the fewest pairs."""
    fewest = each.series.sizes[0]
    first = each.series.spread(fewest).typical
    grows = found.processors == "own" and not _is_one_program(each)
    return {pairs: first * pairs / fewest if grows else first for pairs in each.series.sizes}


def _has_ideal(each: StyledSeries) -> bool:
    """Whether a line of it is drawn. That of one program is level, and begins where others do."""
    return len(each.series.values) > 1 and not _is_one_program(each)


def _ideal_style(each: StyledSeries) -> SeriesStyle:
    return replace(each.style, label=f"{each.label}, ideal", dash=_IDEAL_DASH)


def _styles(found: _Size) -> list[SeriesStyle]:
    ideals = [_ideal_style(each) for each in found.series if _has_ideal(each)]
    return [*(each.style for each in found.series), *ideals]


def _ideal_rows(found: _Size, each: StyledSeries) -> Iterator[Row]:
    label = _ideal_style(each).label
    for pairs, total in _ideal(found, each).items():
        yield Row(label, pairs, total, total, total, text.quantity(total, each.series.unit))


def _figure(found: _Size) -> Figure:
    rows = figures.metric_rows(found.series, positive=True)
    rows += [row for each in found.series if _has_ideal(each) for row in _ideal_rows(found, each)]
    curves = Curves(
        f"{SIDE_BY_SIDE_TEST}-{found.size_bytes}-{found.link.id}",
        found.title,
        _subtitle(found),
        rows,
        _styles(found),
        found.series[0].series.unit,
        "All together",
        axis=PAIRS,
        alternative=series_words(found.series, PAIRS),
    )
    return figure_of(curves, (_table(found),))


def _subtitle(found: _Size) -> str:
    where = _WHERE.get(found.processors)
    return link_title(found.link) + ("" if where is None else f"; {where}")


def _table(found: _Size) -> DataTable:
    head = ("Programs", PAIRS.heading, "All together", "Of one pair: least to most", "Efficiency")
    rows = tuple((each.label, *_cells(found, each, pairs)) for each in found.series for pairs in each.series.sizes)
    where = _WHERE.get(found.processors, "processors not told")
    caption = f"{found.title}, {found.link.id}, {where}: mean (smallest to largest)"
    return DataTable(caption, head, rows, "Values as a table")


def _cells(found: _Size, each: StyledSeries, pairs: int) -> tuple[str, str, str, str]:
    series = each.series
    total = text.quantity_range(series.spread(pairs), series.unit)
    ideal = _ideal(found, each)[pairs]
    efficiency = f"{100 * series.spread(pairs).typical / ideal:.0f} %" if ideal > 0 else "not told"
    on = f" on {text.plural(found.cores[pairs], 'core')}" if pairs in found.cores and not _is_one_program(each) else ""
    return f"{pairs}{on}", total, _of_one_pair(found, each, pairs), efficiency


def _of_one_pair(found: _Size, each: StyledSeries, pairs: int) -> str:
    """The least and the most that a pair had, each on average over the repetitions."""
    if _is_one_program(each) and pairs > 1:
        return "not told apart"
    per_message = 1e6 / 8 / found.size_bytes if found.is_counted else 1.0
    least, most = (spread(ends[pairs], "mean").typical * per_message for ends in found.ends[each.label])
    words = [text.quantity(end, each.series.unit) for end in (least, most)]
    return " to ".join(words[: min(pairs, 2)])
