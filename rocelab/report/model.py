"""A run as the report sees it: series with their style, derived CPU series, and Soft RoCE held against TCP."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rocelab import load, peers
from rocelab.claims import Claim, FigureSeries, Judgement, SourceFigure, claims_by_id, figures_of, judge_with_draws
from rocelab.drawn import DrawnSamples, DrawStore
from rocelab.report import catalogue
from rocelab.report.catalogue import GROUP_STEP, Mesh, SeriesStyle, Test
from rocelab.results import LinkInfo, ResultsError, RunInfo, RunStore, Sample
from rocelab.stats import Better, Ratio, Series, SeriesKey, SeriesTable, best_to_best, text


@dataclass(frozen=True)
class StyledSeries:
    """A series with the name and look it has everywhere in the report."""

    series: Series
    style: SeriesStyle

    @property
    def label(self) -> str:
        """Its name."""
        return self.style.label


@dataclass(frozen=True)
class SpeedRatio:
    """How many times as good one series is as another at one size, Soft RoCE as a TCP; above one it is better."""

    size_bytes: int
    ratio: Ratio
    subject: StyledSeries
    reference: StyledSeries


def _place(sample: Sample) -> tuple[str, str, str, str]:
    return sample.link, sample.test, sample.interconnect, sample.variant


def _with_links_of(info: RunInfo, other: RunInfo) -> RunInfo:
    """A run with the links that only the other has, too."""
    known = {link.id for link in info.links}
    return dataclasses.replace(info, links=(*info.links, *(link for link in other.links if link.id not in known)))


class RunModel:
    """Everything the pages, figures and tables of one run are made of."""

    def __init__(self, info: RunInfo, samples: Sequence[Sample], draws: DrawnSamples | None = None) -> None:
        """Takes the current samples of the run, and its draws if it has any."""
        self.info = info
        self.samples = samples
        self._draws = draws
        self._table = SeriesTable(samples)
        self._styles = self._make_styles()
        self._speed_ratios: dict[SeriesKey, dict[str, list[SpeedRatio]]] = {}

    @classmethod
    def of(cls, store: RunStore, beside: RunStore | None = None) -> RunModel:
        """Reads a run folder, and another whose series are shown beside.

        Raises ResultsError if both have the same one.
        """
        model = cls(store.info, store.current_samples(), DrawStore(store.path).read())
        return model if beside is None else model.beside(cls(beside.info, beside.current_samples()))

    def beside(self, other: RunModel) -> RunModel:
        """Gives a model of this run that has the series of another, too.

        Raises ResultsError if both have the same one.
        """
        both = {_place(sample) for sample in self.samples} & {_place(sample) for sample in other.samples}
        if both:
            link, test, interconnect, variant = min(both)
            raise ResultsError(
                f"{self.info.id} and {other.info.id} both hold {interconnect} {variant} ({test}, link {link}), "
                "which one figure cannot tell apart; 'rocelab compare' compares two runs of the same"
            )
        return RunModel(_with_links_of(self.info, other.info), [*self.samples, *other.samples], self._draws)

    def _make_styles(self) -> dict[tuple[str, str], SeriesStyle]:
        pairs = dict.fromkeys((key.interconnect, key.variant) for key in self._table)
        ordered = sorted(pairs, key=lambda pair: catalogue.series_rank(*pair))
        return {pair: catalogue.series_style(*pair, spare, self.default_control) for spare, pair in enumerate(ordered)}

    @cached_property
    def default_control(self) -> str | None:
        """What the machine's default congestion control was, by its own words or those of a program that had it."""
        of_machine = self.info.provenance.network.get("net.ipv4.tcp_congestion_control")
        if of_machine is not None:
            return str(of_machine)
        named = (
            sample.params.get("congestion_control_client")
            for sample in self.samples
            if peers.control_of(sample.variant) == peers.DEFAULT
        )
        return next((str(each) for each in named if each is not None), None)

    @property
    def styles(self) -> list[SeriesStyle]:
        """The styles of all series, in the order in which they are listed."""
        return list(self._styles.values())

    @cached_property
    def tests(self) -> list[Test]:
        """The sections this run has of tests by message size."""
        return catalogue.tests_of([key for key in self._table if not self._is_sizeless(key)])

    @cached_property
    def tests_without_sizes(self) -> list[Test]:
        """The tests without sizes, each with a scale of its own."""
        sizeless = [key for key in self._table if self._is_sizeless(key)]
        return catalogue.tests_of([key for key in sizeless if key.level != catalogue.NAS_LEVEL])

    @property
    def every_test(self) -> list[Test]:
        """Tests by message size, then those without sizes."""
        return [*self.tests, *self.tests_without_sizes]

    def _is_sizeless(self, key: SeriesKey) -> bool:
        series = self._table.get(key)
        return series is not None and series.is_sizeless

    @cached_property
    def links(self) -> list[LinkInfo]:
        """The link profiles that have samples."""
        measured = {sample.link for sample in self.samples}
        known = [link for link in self.info.links if link.id in measured]
        return known + [LinkInfo(each, "unknown", 0) for each in sorted(measured - {link.id for link in known})]

    @property
    def load_advice(self) -> str | None:
        """What took the processors during the run, and what to do about it; None where little did."""
        return None if self.info.load is None else load.advice(self.info.load)

    @cached_property
    def failed(self) -> list[Sample]:
        """The samples of failed steps, in the order they ran."""
        return [sample for sample in self.samples if not sample.ok]

    @cached_property
    def failed_step_count(self) -> int:
        """How many steps failed."""
        return len({sample.key for sample in self.failed})

    @cached_property
    def step_count(self) -> int:
        """How many different steps left samples."""
        return len({sample.key for sample in self.samples})

    @cached_property
    def judgements(self) -> list[Judgement]:
        """The claims of the study, judged."""
        return [self.judged(claim) for claim in claims_by_id(self.info.claims)]

    def judged(self, claim: Claim) -> Judgement:
        """What the run, with its draws if it has any, says about a claim."""
        return judge_with_draws(claim, self.info, self.samples, self._draws)

    @cached_property
    def source_figures(self) -> list[SourceFigure]:
        """The figures of the sources of the study's claims."""
        return list(figures_of(claims_by_id(self.info.claims)))

    def scales(self, figure: SourceFigure) -> list[tuple[int, int]]:
        """On how many nodes, with how many processes a figure's test was run."""
        found = {(key.nodes, key.ranks) for key in self._table if (key.level, key.test) == (figure.level, figure.test)}
        return sorted(found)

    def source_lines(self, link: str, figure: SourceFigure, scale: tuple[int, int]) -> list[StyledSeries]:
        """The lines of a source's figure, under the source's names and in its unit; none if one of them is missing."""
        lines = []
        for line in figure.series:
            series = self._first(link, line, (figure.level, figure.test, figure.metric), scale)
            if series is None:
                return []
            style = self._styles[series.key.interconnect, series.key.variant]
            shown = _in_words_of(figure, series)
            lines.append(StyledSeries(shown, dataclasses.replace(style, label=line.name)))
        return lines

    def source_lines_across(self, figure: SourceFigure) -> list[StyledSeries]:
        """The lines of a figure whose lines name their links: those that the run has."""
        lines = []
        for line, (colour, shape, dash) in zip(figure.series, catalogue.FIGURE_LOOKS, strict=False):
            if figure.groups:
                series = self._over_groups(figure, line)
            else:
                series = self._any_scale(figure, line, figure.test, figure.metric)
            if series is not None:
                shown = _in_words_of(figure, series)
                lines.append(StyledSeries(shown, SeriesStyle(line.name, colour, shape, dash)))
        return lines

    def _any_scale(self, figure: SourceFigure, line: FigureSeries, test: str, metric: str) -> Series | None:
        """A line of a figure, on whatever number of nodes it was measured."""
        return self._first(line.link or "", line, (figure.level, test, metric))

    def _first(
        self, link: str, line: FigureSeries, what: tuple[str, str, str], scale: tuple[int, int] | None = None
    ) -> Series | None:
        """The first of the line's variants that the run has of a level, a test and a metric.

        Of several congestion controls it is the one that was measured first.
        """
        for variant in line.variants:
            level, test, metric = what
            wanted = SeriesKey(link, level, test, line.interconnect, variant, metric)
            for key in self._table:
                at = (key.nodes, key.ranks)
                found = key._replace(nodes=wanted.nodes, ranks=wanted.ranks, variant=variant)
                if found == wanted and peers.matches(key.variant, variant) and scale in (None, at):
                    return self._table.get(key)
        return None

    def _over_groups(self, figure: SourceFigure, line: FigureSeries) -> Series | None:
        """What the tests of a figure gave, each at its place on the axis."""
        found = [self._any_scale(figure, line, group.test, group.metric) for group in figure.groups]
        measured = [series for series in found if series is not None]
        if not measured:
            return None
        places = {
            GROUP_STEP * (at + 1): next(iter(series.values.values()))
            for at, series in enumerate(found)
            if series is not None
        }
        return dataclasses.replace(measured[0], values=places)

    def over_time(self, figure: SourceFigure, line: FigureSeries) -> list[StyledSeries]:
        """What each node did over the time of the first repetition, in tenths of a second."""
        by_node: dict[str, dict[int, tuple[float, ...]]] = {}
        one: Sample | None = None
        for sample in self.samples:
            place = (sample.link, sample.level, sample.test, sample.interconnect, sample.metric, sample.repetition)
            wanted = (line.link, figure.level, figure.test, line.interconnect, figure.metric, 0)
            is_of_line = any(peers.matches(sample.variant, variant) for variant in line.variants)
            if place == wanted and is_of_line and sample.value is not None:
                # Of several congestion controls or numbers of nodes, the first is drawn.
                if one is not None and (sample.variant, sample.nodes) != (one.variant, one.nodes):
                    continue
                node, _, at_s = sample.statistic.partition("@")
                by_node.setdefault(node, {})[round(10 * float(at_s))] = (sample.value * figure.factor,)
                one = sample
        if one is None:
            return []
        key = SeriesKey(one.link, one.level, one.test, one.interconnect, one.variant, one.metric, one.nodes, one.ranks)
        return [
            StyledSeries(Series(key, figure.unit, "moment", values), SeriesStyle(node, *look))
            for (node, values), look in zip(sorted(by_node.items()), catalogue.FIGURE_LOOKS, strict=False)
        ]

    def series(self, link: str, test: Test) -> list[StyledSeries]:
        """The main metric of a test on a link, one series for each program that ran."""
        return self._metric(link, test, test.metric)

    def _metric(self, link: str, test: Test, metric: str) -> list[StyledSeries]:
        keys = (SeriesKey(link, test.level, test.test, *pair, metric, test.nodes, test.ranks) for pair in self._styles)
        return [self.styled(series) for key in keys if (series := self._table.get(key)) is not None]

    def tail(self, link: str, test: Test, statistic: str = "p99") -> list[StyledSeries]:
        """The same series at another statistic, where the tool gave it."""
        keys = (
            SeriesKey(link, test.level, test.test, *pair, test.metric, test.nodes, test.ranks) for pair in self._styles
        )
        return [self.styled(series) for key in keys if (series := self._table.statistic(key, statistic)) is not None]

    def cpu(self, link: str, quantity: str) -> list[StyledSeries]:
        """CPU use of both ends together: ``quantity`` is ``cores`` or ``us_per_mib``."""
        found = []
        for pair in self._styles:
            ends = [
                self._table.get(SeriesKey(link, *catalogue.CPU_TEST, *pair, f"cpu_{end}_{quantity}"))
                for end in ("client", "server")
            ]
            if ends[0] is not None and ends[1] is not None:
                found.append(self.styled(ends[0].plus(ends[1], f"cpu_{quantity}")))
        return [each for each in found if each.series.values]

    def mesh(self, link: str, mesh: Mesh) -> list[StyledSeries]:
        """What all nodes moved together, over the number of nodes, one series for each program that ran."""
        keys = (SeriesKey(link, mesh.level, mesh.test, *pair, mesh.metric) for pair in self._styles)
        return [self.styled(series) for key in keys if (series := self._table.get(key)) is not None]

    @property
    def series_keys(self) -> list[SeriesKey]:
        """Every series, in the order in which they first appear in the run."""
        return list(self._table)

    def series_of(self, key: SeriesKey, statistic: str | None = None) -> Series | None:
        """A series by its key: the typical values, or those of a statistic."""
        return self._table.get(key) if statistic is None else self._table.statistic(key, statistic)

    def styled(self, series: Series) -> StyledSeries:
        """A series of the run with its name and look."""
        return StyledSeries(series, self._styles[series.key.interconnect, series.key.variant])

    def subject(self, series: list[StyledSeries], waiting: peers.Waiting = "polling") -> StyledSeries | None:
        """The series that is held against TCP, of those that wait this way."""
        by_variant = {each.series.key.variant: each for each in series if _is_of(each, peers.SOFT_ROCE)}
        level = series[0].series.key.level if series else ""
        known = peers.SUBJECTS.get(level, {}).get(waiting, ())
        return next((by_variant[variant] for variant in known if variant in by_variant), None)

    def references(self, series: list[StyledSeries], waiting: peers.Waiting | None = None) -> list[StyledSeries]:
        """The TCPs that the subject is held against: those that wait this way, or all."""
        found = [each for each in series if _is_of(each, peers.TCP)]
        level = series[0].series.key.level if series else ""
        chosen = set(peers.references(level, (each.series.key.variant for each in found), waiting))
        return [each for each in found if each.series.key.variant in chosen]

    def speed_ratios(self, series: list[StyledSeries]) -> dict[str, list[SpeedRatio]]:
        """Soft RoCE against the best TCP that waits as it does, and against the best of all, size by size."""
        key = series[0].series.key if series else None
        if key is None:
            return {}
        if key not in self._speed_ratios:
            self._speed_ratios[key] = self._compare(series)
        return self._speed_ratios[key]

    def _compare(self, series: list[StyledSeries]) -> dict[str, list[SpeedRatio]]:
        everyone = self.references(series)
        found: dict[str, list[SpeedRatio]] = {}
        for waiting, name in catalogue.BEST_WAITING.items():
            subject, references = self.subject(series, waiting), self.references(series, waiting)
            # Where all wait alike, this is the comparison with the best of all.
            if subject is not None and len(references) < len(everyone):
                found[name] = speed_ratios(subject, references)
        subject = self.subject(series)
        if subject is not None:
            found[catalogue.BEST_TCP] = speed_ratios(subject, everyone)
        return {name: ratios for name, ratios in found.items() if ratios}


def lower_is_better(series: Series) -> bool:
    """Whether a small value is the good one."""
    return catalogue.metric(series.key.metric).better == "lower"


def best_at(candidates: list[StyledSeries], size_bytes: int) -> StyledSeries | None:
    """The candidate that is best at a size, by what stands for its repetitions."""
    measured = [each for each in candidates if size_bytes in each.series.values]
    if not measured:
        return None
    choose = min if lower_is_better(measured[0].series) else max
    return choose(measured, key=lambda each: each.series.spread(size_bytes).typical)


def speed_ratios(subject: StyledSeries, references: Sequence[StyledSeries]) -> list[SpeedRatio]:
    """At each size, how many times as good a series is as the best of others; sizes where that cannot be said not."""
    every = (speed_ratio([subject], references, size) for size in subject.series.sizes)
    return [each for each in every if each is not None]


def speed_ratio(
    subjects: Sequence[StyledSeries], references: Sequence[StyledSeries], size_bytes: int
) -> SpeedRatio | None:
    """How many times as good the best of some series is as the best of others at a size; None where there are none."""
    if not subjects:
        return None
    lower = lower_is_better(subjects[0].series)
    better: Better = "lower" if lower else "higher"
    ours, theirs = ([each.series for each in side] for side in (subjects, references))
    found = best_to_best(ours, theirs, size_bytes, better=better)
    if found is None:
        return None
    at, best = found
    return SpeedRatio(size_bytes, best.ratio.inverse() if lower else best.ratio, subjects[at], references[best.best])


def _in_words_of(figure: SourceFigure, series: Series) -> Series:
    """A series as its figure shows it: another unit, or the bandwidth for the time of a message."""
    values = {
        size: tuple((size * 8 / each if figure.shown == "bandwidth" else each) * figure.factor for each in found)
        for size, found in series.values.items()
    }
    return dataclasses.replace(series, unit=figure.unit, values=values)


def link_title(link: LinkInfo) -> str:
    """A link profile in words: ``ethernet-1g (through a switch, 1 Gbps, MTU 1500)``."""
    parts = [catalogue.LINK_TEXTS.get(link.kind, link.kind)]
    if link.rate_mbps is not None:
        parts.append(text.quantity(link.rate_mbps, "Mbps").replace(".00", ""))
    elif link.kind not in catalogue.SIMULATED_LINKS:
        parts.append("unshaped")
    if link.uplink_rate_mbps is not None:
        parts.append(f"uplinks of {text.quantity(link.uplink_rate_mbps, 'Mbps').replace('.00', '')}")
    if link.mtu_bytes:
        parts.append(f"MTU {link.mtu_bytes}")
    if link.loss_percent is not None:
        parts.append(f"{link.loss_percent:g} % loss")
    if link.ecn_percent is not None:
        parts.append(f"marks from {link.ecn_percent:g} % of its rate")
    return f"{link.id} ({', '.join(parts)})"


def _is_of(series: StyledSeries, interconnect: str) -> bool:
    return series.series.key.interconnect == interconnect
