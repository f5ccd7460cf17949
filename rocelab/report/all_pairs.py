"""All pairs of nodes: which node or pair is slower than the others, in words, and a map of every pair."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from statistics import median

from rocelab.report import catalogue
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.map_figure import CELL_MIN_PX, Cell, Map, map_height_px, map_spec
from rocelab.report.model import RunModel, link_title
from rocelab.results import PAIRS_LEVEL, Sample
from rocelab.stats import text
from rocelab.stats.pairs import NODES_MIN, Better, Effects, Outlier, Pair, switches_apart, taken_apart

_SWITCH_ADVICE = "Look at what joins the switches: uplinks, their optics and counters, routes."
#: Of more nodes, a map in a page would have cells that cannot be seen.
MAP_NODES_MAX = 128
_TEXT = (
    "Every node with every other, as many pairs at a time as share no node. A cell is what a pair has relative to what "
    "all have: a slow cable, port or node is a row and a column, a slow path is a cell."
)


@dataclass(frozen=True)
class AllPairs:
    """All pairs of one test over one interconnect on one link."""

    link: str
    link_title: str
    test: str
    style: SeriesStyle
    size_bytes: int
    metric: str
    unit: str
    values: Mapping[Pair, tuple[float, ...]]
    """By client and server, of each repetition that succeeded."""
    failed: tuple[Pair, ...]
    """Pairs without any value."""
    switch_of: Mapping[str, str]
    """By node, where that is known of all."""

    @property
    def nodes(self) -> list[str]:
        """All that took part, those of a switch beside each other."""
        nodes = {node for pair in (*self.values, *self.failed) for node in pair}
        return sorted(nodes, key=lambda node: (_natural(self.switch_of.get(node, "")), _natural(node)))

    @property
    def is_one_way(self) -> bool:
        """Whether each pair was measured one way, which says the same of the other."""
        return all(pair[::-1] not in self.values for pair in self.values)

    @property
    def is_lower_better(self) -> bool:
        """Of times."""
        return catalogue.metric(self.metric).better == "lower"

    @cached_property
    def typical(self) -> Mapping[Pair, float]:
        """What stands for the repetitions of each pair."""
        return {pair: median(values) for pair, values in self.values.items()}

    @cached_property
    def effects(self) -> Effects | None:
        """What each node has to do with it; None where that cannot be told."""
        return taken_apart(self.values, better="lower" if self.is_lower_better else "higher")

    @cached_property
    def switches(self) -> tuple[Outlier, ...]:
        """Switches, and paths between two, that are slower than the others."""
        if not self.switch_of:
            return ()
        better: Better = "lower" if self.is_lower_better else "higher"
        return switches_apart(self.values, self.switch_of, better=better)

    @cached_property
    def outliers(self) -> tuple[Outlier, ...]:
        """Nodes and pairs that are slower than the others, beyond what their switches are."""
        slow = {each.nodes[0] for each in self.switches if len(each.nodes) == 1}
        paths = {frozenset(each.nodes) for each in self.switches}
        found = () if self.effects is None else self.effects.outliers
        return tuple(each for each in found if not self._is_of(each, slow, paths))

    def _is_of(self, outlier: Outlier, slow: AbstractSet[str], paths: AbstractSet[frozenset[str]]) -> bool:
        switches = [self.switch_of[node] for node in outlier.nodes] if self.switch_of else []
        return any(switch in slow for switch in switches) or (len(switches) == 2 and frozenset(switches) in paths)

    @property
    def what(self) -> str:
        """The test in words."""
        return f"{self.test.replace('-', ' ')} of {text.size(self.size_bytes)} by {self.style.label}"

    @property
    def name(self) -> str:
        """Of its figure."""
        words = f"pairs-{self.link}-{self.test}-{self.style.label}-{self.size_bytes}".lower()
        return "".join(letter if letter.isalnum() else "-" for letter in words)


def _natural(name: str) -> tuple[object, ...]:
    """node2 before node10."""
    digits = "".join(letter for letter in name if letter.isdigit())
    return (name.rstrip("0123456789"), int(digits) if digits else -1, name)


def of_run(model: RunModel) -> list[AllPairs]:
    """All that a run has, in the order in which they were measured."""
    found: dict[tuple[str, str, str, str, int], list[Sample]] = defaultdict(list)
    for sample in model.samples:
        if sample.level == PAIRS_LEVEL:
            place = (sample.link, sample.test, sample.interconnect, sample.variant, sample.size_bytes or 0)
            found[place].append(sample)
    titles = {link.id: link_title(link) for link in model.links}
    made = []
    for spare, ((link, test, interconnect, variant, size_bytes), samples) in enumerate(found.items()):
        values: dict[Pair, list[float]] = defaultdict(list)
        asked = dict.fromkeys((str(each.params["client"]), str(each.params["server"])) for each in samples)
        for each in samples:
            if each.value is not None and each.value > 0:
                values[str(each.params["client"]), str(each.params["server"])].append(each.value)
        made.append(
            AllPairs(
                link=link,
                link_title=titles[link],
                test=test,
                style=catalogue.series_style(interconnect, variant, spare, model.default_control),
                size_bytes=size_bytes,
                metric=samples[0].metric,
                unit=samples[0].unit,
                values={pair: tuple(each) for pair, each in values.items()},
                failed=tuple(pair for pair in asked if pair not in values),
                switch_of=_switches(samples),
            )
        )
    return made


def _switches(samples: Sequence[Sample]) -> dict[str, str]:
    """The switch of each node; of none unless that of all is known."""
    found = {
        str(each.params[end]): str(each.params.get(f"{end}_switch", ""))
        for each in samples
        for end in ("client", "server")
    }
    return found if all(found.values()) else {}


@dataclass(frozen=True)
class Finding:
    """A switch, a node, or a pair of them that is slower than the others."""

    subject: str
    text: str


def findings(found: Sequence[AllPairs]) -> list[Finding]:
    """What stands out, switches first, nodes before pairs, and the slowest first; one for each, with all tests."""
    of_nodes = ((each, outlier) for each in found for outlier in each.outliers)
    of_switches = ((each, outlier) for each in found for outlier in each.switches)
    return [*_findings(of_switches, are_switches=True), *_findings(of_nodes, are_switches=False)]


def _findings(every: Iterable[tuple[AllPairs, Outlier]], *, are_switches: bool) -> Iterator[Finding]:
    by_subject: dict[tuple[str, str], list[tuple[AllPairs, Outlier]]] = {}
    for each, outlier in sorted(every, key=lambda one: len(one[1].nodes)):
        by_subject.setdefault((each.link, " to ".join(outlier.nodes)), []).append((each, outlier))
    for (link, subject), seen in by_subject.items():
        advice = _SWITCH_ADVICE if are_switches else _advice(seen[0][1])
        named = f"switch {subject}" if are_switches else subject
        yield Finding(named, f"On {link}: {'; '.join(_words(*one) for one in seen)}. {advice}")


def _words(each: AllPairs, outlier: Outlier) -> str:
    if each.is_lower_better:
        return f"{text.times(outlier.factor)} the time of the others in {each.what}"
    percent = f"{100 * outlier.factor:.0f} %"
    if len(outlier.nodes) == 2:
        return f"{percent} of what both have with others in {each.what}"
    (node,) = outlier.nodes
    if outlier.end == "both" and not each.is_one_way and each.effects is not None and node in each.effects.sends:
        sends, receives = (100 * ends[node] for ends in (each.effects.sends, each.effects.receives))
        return f"sends at {sends:.0f} % and receives at {receives:.0f} % of the others in {each.what}"
    verbs = {"sends": "sends at", "receives": "receives at", "both": "has"}
    return f"{verbs[outlier.end]} {percent} of the others in {each.what}"


def _advice(outlier: Outlier) -> str:
    if len(outlier.nodes) == 2:
        return "Look at the path between them: switches, uplinks, routes."
    return "Look at its cable, its port at the switch and its adapter, and then at what else the node does."


def sentences(found: Sequence[AllPairs]) -> list[str]:
    """What was measured and what came of it, one for each."""
    return [_sentence(each) for each in found]


def _sentence(each: AllPairs) -> str:
    pairs = text.plural(len(each.values), "pair")
    what = f"{each.link_title}, {each.what}: {pairs} of {text.plural(len(each.nodes), 'node')}"
    if not each.values:
        return f"{what}. None was measured: all failed."
    values = each.typical.values()
    typical, low, high = (text.quantity(choose(values), each.unit) for choose in (median, min, max))
    what += f", typically {typical} ({low} to {high})"
    if each.failed:
        what += f"; {text.plural(len(each.failed), 'pair')} failed"
    if each.effects is None:
        return f"{what}. Of fewer than {NODES_MIN} nodes, none can be said to be slower than the others."
    count = len(each.outliers) + len(each.switches)
    return f"{what}. " + ("No node and no pair stands out." if not count else f"{count} of them stand out.")


def sections(found: Sequence[AllPairs]) -> list[Section]:
    """One section, if there are all pairs."""
    by_link: dict[str, list[Figure]] = {}
    for each in (one for one in found if one.values):
        by_link.setdefault(each.link_title, []).append(_figure(each))
    links = tuple((title, tuple(figures)) for title, figures in by_link.items())
    return [Section("pairs", "All pairs", _TEXT, links, ())] if links else []


def _figure(each: AllPairs) -> Figure:
    nodes = each.nodes
    shown = Map(
        each.name,
        text.upper_first(each.what),
        each.link_title,
        nodes,
        [*_cells(each)] if len(nodes) <= MAP_NODES_MAX else [],
        ("Node", "Node") if each.is_one_way else ("Client, which sends", "Server, which receives"),
    )
    return Figure(
        shown.name,
        shown.title,
        shown.subtitle,
        f"{shown.title}. {_sentence(each)}",
        map_spec(shown, interactive=True),
        map_spec(shown, interactive=False),
        (_table(each),),
        map_height_px(shown) + CELL_MIN_PX,
    )


def _cells(each: AllPairs) -> Iterator[Cell]:
    common = median(each.typical.values())
    for pair, value in each.typical.items():
        ratio = common / value if each.is_lower_better else value / common
        words = text.quantity(value, each.unit)
        yield Cell(*pair, ratio, words)
        if each.is_one_way:
            yield Cell(pair[1], pair[0], ratio, words)


def _table(each: AllPairs) -> DataTable:
    """The nodes, the slowest first."""
    common = median(each.typical.values())
    rows = []
    for node in each.nodes:
        sides = _sides(each, node)
        cells = [
            f"{text.quantity(median(side), each.unit)}, {100 * median(side) / common:.0f} %" if side else "none"
            for side in sides
        ]
        worst = min((median(side) * (-1 if each.is_lower_better else 1) for side in sides if side), default=0.0)
        rows.append((worst, (node, *cells)))
    heads = ("with the others",) if each.is_one_way else ("sends", "receives")
    caption = f"{text.upper_first(each.what)}, {each.link_title}: median over the other nodes, and its part of all"
    return DataTable(caption, ("Node", *heads), tuple(cells for _, cells in sorted(rows)), "Nodes, the slowest first")


def _sides(each: AllPairs, node: str) -> list[list[float]]:
    """What a node has with the others: as the sender and as the receiver, or as either."""
    if each.is_one_way:
        return [[value for pair, value in each.typical.items() if node in pair]]
    return [[value for pair, value in each.typical.items() if pair[end] == node] for end in (0, 1)]


def pairs_csv(found: Sequence[AllPairs]) -> str:
    """Every pair, one line each."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = ("link", "test", "series", "size_bytes", "client", "server", "metric", "unit", "median", "min", "max")
    writer.writerow((*head, "repetitions"))
    for each in found:
        place = (each.link, each.test, each.style.label, each.size_bytes)
        for pair, values in each.values.items():
            numbers = (f"{value:.6g}" for value in (median(values), min(values), max(values)))
            writer.writerow((*place, *pair, each.metric, each.unit, *numbers, len(values)))
        for pair in each.failed:
            writer.writerow((*place, *pair, each.metric, each.unit, "", "", "", 0))
    return out.getvalue()
