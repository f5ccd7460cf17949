"""The section on flows that share a link: the part that each has of an even share, and how long the link's queue is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from rocelab import peers
from rocelab.report import catalogue
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel, link_title
from rocelab.report.sharing_figure import Dot, Dots, dots_height_px, dots_spec
from rocelab.results import (
    EVENTS_METRIC,
    FLOW_METRIC,
    QUEUE_LOST_METRIC,
    QUEUE_METRIC,
    SHARING_TEST,
    LinkInfo,
    Sample,
)
from rocelab.stats import spread, text
from rocelab.variants import Flows, mix_of

#: A flow whose share is no further than this factor from an even one is called within.
BOUND: Final = 1.5
_TEXT: Final = (
    "Several flows at the same time, each from a server of its own, to one that they all send to; they meet at the "
    "switch. An even share is what all of them moved together over their number. A flow is within the bounds, which "
    f"are grey, if its median has at most {BOUND:g} times an even share, and at least an even share over {BOUND:g}. "
    "Meanwhile another server, without a flow, sends a datagram of 64 bytes every 10 ms: its round trip is what the "
    "queue in front of the shared cable adds for everyone. Lines are the range of the repetitions."
)
#: The rows of the queue's figure.
_MEDIAN = SeriesStyle("median", "#2383e2", "circle")
_TAIL = SeriesStyle("99 %", "#dd5a26", "diamond")

#: By metric and statistic, the value of each repetition.
_Values = Mapping[tuple[str, str], Mapping[int, float]]


@dataclass(frozen=True)
class _Mix:
    """One mix of flows, as it was measured on a link."""

    flows: tuple[Flows, ...]
    values: _Values

    @property
    def count(self) -> int:
        return sum(each.count for each in self.flows)

    def of(self, metric: str, statistic: str = "total") -> list[float]:
        """The value of each repetition; none where nothing was counted."""
        return list(self.values.get((metric, statistic), {}).values())

    def times_even(self, flow: str) -> list[float]:
        """How many times an even share a flow had in each repetition."""
        totals = self.values["throughput_mbps", "total"]
        of_flow = self.values[FLOW_METRIC, flow]
        return [of_flow[at] * self.count / totals[at] for at in of_flow if totals.get(at, 0.0) > 0]


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has flows that share a link."""
    links = tuple(
        (link_title(link), (_shares_figure(model, link, found), _queue_figure(model, link, found)))
        for link in model.links
        if (found := _mixes(model, link))
    )
    return [Section("sharing", "Flows that share a link", _TEXT, links, ())] if links else []


def tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """The shares and the queue on a link; none if nothing shared it."""
    found = _mixes(model, link)
    return [_shares_table(model, link, found), _queue_table(model, link, found)] if found else []


def _mixes(model: RunModel, link: LinkInfo) -> list[_Mix]:
    values: dict[tuple[str, str], dict[tuple[str, str], dict[int, float]]] = {}
    for sample in model.samples:
        if _is_shown(sample) and sample.link == link.id:
            assert sample.value is not None
            by_name = values.setdefault((sample.interconnect, sample.variant), defaultdict(dict))
            by_name[sample.metric, sample.statistic][sample.repetition] = sample.value
    mixes = [_Mix(mix_of(*names), found) for names, found in values.items()]
    return sorted(mixes, key=_rank)


def _is_shown(sample: Sample) -> bool:
    return (sample.level, sample.test) == ("network", SHARING_TEST) and sample.value is not None


def _rank(mix: _Mix) -> tuple[object, ...]:
    """Mixes of few kinds come first, and those that differ in their variants alone next to each other."""
    kinds = [(each.interconnect, each.count) for each in mix.flows]
    return len(mix.flows), [name != peers.SOFT_ROCE for name, _ in kinds], kinds, [each.variant for each in mix.flows]


def _style(model: RunModel, kind: Flows) -> SeriesStyle:
    return catalogue.series_style(kind.interconnect, kind.variant, 0, model.default_control)


def _name(model: RunModel, mix: _Mix) -> str:
    """Such as ``1 Soft RoCE write, 4 TCP blocking (cubic)``."""
    parts = []
    for each in mix.flows:
        label, *more = _style(model, each).label.split(", ")
        parts.append(f"{each.count} {label}" + (f" ({', '.join(more)})" if more else ""))
    return ", ".join(parts)


def _flow_names(kind: Flows) -> list[str]:
    return [f"{kind.interconnect} {number}" for number in range(1, kind.count + 1)]


def _is_within(times: float) -> bool:
    return 1 / BOUND <= times <= BOUND


def _shares_figure(model: RunModel, link: LinkInfo, mixes: Sequence[_Mix]) -> Figure:
    dots = []
    for mix in mixes:
        every = [(kind, flow) for kind in mix.flows for flow in _flow_names(kind)]
        for place, (kind, flow) in enumerate(every if mix.count > 1 else ()):
            summary = spread(mix.times_even(flow))
            words = _range(text.times(summary.median), mix.times_even(flow))
            ends = (summary.median, summary.low, summary.high)
            dots.append(Dot(_name(model, mix), _style(model, kind).label, place, *ends, words))
    kinds = {_style(model, kind).label: _style(model, kind) for mix in mixes for kind in mix.flows if mix.count > 1}
    title, subtitle = "Share of each flow", link_title(link)
    shown = Dots(title, subtitle, dots, tuple(kinds.values()), "Times an even share", (1 / BOUND, BOUND))
    words = " ".join(f"{dot.row}, {dot.series}: {dot.words}." for dot in dots)
    return _figure(f"sharing-{link.id}", shown, words, _shares_table(model, link, mixes))


def _queue_figure(model: RunModel, link: LinkInfo, mixes: Sequence[_Mix]) -> Figure:
    dots = []
    for mix in mixes:
        for place, (style, statistic) in enumerate(((_MEDIAN, "median"), (_TAIL, "p99"))):
            found = mix.of(QUEUE_METRIC, statistic)
            summary = spread(found)
            ends = (summary.median, summary.low, summary.high)
            dots.append(Dot(_name(model, mix), style.label, place, *ends, _milliseconds(found)))
    title, subtitle = "Round trip of a datagram meanwhile", link_title(link)
    shown = Dots(title, subtitle, dots, (_MEDIAN, _TAIL), "Round trip, ms", None)
    words = " ".join(f"{dot.row}, {dot.series}: {dot.words}." for dot in dots)
    return _figure(f"sharing-queue-{link.id}", shown, words, _queue_table(model, link, mixes))


def _figure(name: str, shown: Dots, words: str, table: DataTable) -> Figure:
    return Figure(
        name,
        shown.title,
        shown.subtitle,
        f"{shown.title}, {shown.subtitle}. {words}",
        dots_spec(shown, interactive=True),
        dots_spec(shown, interactive=False),
        (table,),
        dots_height_px(shown),
        shown.styles,
        tuple(style.label for style in shown.styles),
    )


def _shares_table(model: RunModel, link: LinkInfo, mixes: Sequence[_Mix]) -> DataTable:
    head = ("Flows at once", "Of these", "Even share", "Share", "Times an even share", f"Within {BOUND:g}\u00d7")
    rows = tuple(row for mix in mixes if mix.count > 1 for row in _share_rows(model, mix))
    caption = f"Share of each flow, {link.id}: median (smallest to largest); of several alike, the least and the most"
    return DataTable(caption, head, rows, "Shares as a table")


def _share_rows(model: RunModel, mix: _Mix) -> Iterator[tuple[str, ...]]:
    for kind in mix.flows:
        every = sorted((mix.times_even(flow) for flow in _flow_names(kind)), key=median)
        ends = every[:1] if len(every) == 1 else [every[0], every[-1]]
        percent = " and ".join(f"{100 * median(each) / mix.count:.0f} %" for each in ends)
        times = " and ".join(_range(text.times(median(each)), each) for each in ends)
        within = all(_is_within(median(each)) for each in every)
        label = _style(model, kind).label
        yield _name(model, mix), label, f"{100 / mix.count:.0f} %", percent, times, "yes" if within else "no"


def _range(typical: str, values: Sequence[float]) -> str:
    if len(values) == 1:
        return typical
    low, high = (text.times(end)[:-1] for end in (min(values), max(values)))
    return f"{typical} ({low} to {high})"


def _milliseconds(values: Sequence[float]) -> str:
    return text.quantity_range(spread([1000 * each for each in values]), "us")


def _queue_table(model: RunModel, link: LinkInfo, mixes: Sequence[_Mix]) -> DataTable:
    head = ("Flows at once", "Together", "Round trip", "99 %", "Lost", "Packets marked", "Sent again")
    rows = tuple(
        (
            _name(model, mix),
            text.quantity_range(spread(mix.of("throughput_mbps")), "Mbps"),
            _milliseconds(mix.of(QUEUE_METRIC, "median")),
            _milliseconds(mix.of(QUEUE_METRIC, "p99")),
            f"{median(mix.of(QUEUE_LOST_METRIC)):.1f} %",
            *(_count(mix.of(f"{EVENTS_METRIC}{kind}")) for kind in ("marked", "resent")),
        )
        for mix in mixes
    )
    caption = f"What all moved together, and what a datagram met, {link.id}: median (smallest to largest)"
    return DataTable(caption, head, rows, "Queue as a table")


def _count(values: Sequence[float]) -> str:
    return f"{median(values):,.0f}" if values else "not told"
