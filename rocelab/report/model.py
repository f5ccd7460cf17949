"""A run as the report sees it: series with their style, derived CPU series, and Soft RoCE held against TCP."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rocelab.claims import Judgement, claims_by_id, judge
from rocelab.report import catalogue
from rocelab.report.catalogue import Mesh, SeriesStyle, Test
from rocelab.results import MESH_TEST, LinkInfo, RunInfo, RunStore, Sample
from rocelab.stats import Ratio, Series, SeriesKey, SeriesTable, text


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
    """How many times as good Soft RoCE is as a TCP at one size; above one Soft RoCE is better."""

    size_bytes: int
    ratio: Ratio
    subject: StyledSeries
    reference: StyledSeries


class RunModel:
    """Everything the pages, figures and tables of one run are made of."""

    def __init__(self, info: RunInfo, samples: Sequence[Sample]) -> None:
        """Takes the current samples of the run."""
        self.info = info
        self.samples = samples
        self._table = SeriesTable(samples)
        self._styles = self._make_styles()
        self._speed_ratios: dict[SeriesKey, dict[str, list[SpeedRatio]]] = {}

    @classmethod
    def of(cls, store: RunStore) -> RunModel:
        """Reads a run folder."""
        return cls(store.info, store.current_samples())

    def _make_styles(self) -> dict[tuple[str, str], SeriesStyle]:
        pairs = dict.fromkeys((key.interconnect, key.variant) for key in self._table)
        ordered = sorted(pairs, key=lambda pair: catalogue.series_rank(*pair))
        return {pair: catalogue.series_style(*pair, spare) for spare, pair in enumerate(ordered)}

    @property
    def styles(self) -> list[SeriesStyle]:
        """The styles of all series, in the order in which they are listed."""
        return list(self._styles.values())

    @cached_property
    def tests(self) -> list[Test]:
        """The sections this run has."""
        return catalogue.tests_of(list(self._table))

    @cached_property
    def links(self) -> list[LinkInfo]:
        """The link profiles that have samples."""
        measured = {sample.link for sample in self.samples}
        known = [link for link in self.info.links if link.id in measured]
        return known + [LinkInfo(each, "unknown", 0) for each in sorted(measured - {link.id for link in known})]

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
        return [judge(claim, self.info, self.samples) for claim in claims_by_id(self.info.claims)]

    def series(self, link: str, test: Test) -> list[StyledSeries]:
        """The main metric of a test on a link, one series for each program that ran."""
        keys = (SeriesKey(link, test.level, test.test, *pair, test.metric) for pair in self._styles)
        return [self._styled(series) for key in keys if (series := self._table.get(key)) is not None]

    def tail(self, link: str, test: Test, statistic: str = "p99") -> list[StyledSeries]:
        """The same series at another statistic, where the tool gave it."""
        keys = (SeriesKey(link, test.level, test.test, *pair, test.metric) for pair in self._styles)
        return [self._styled(series) for key in keys if (series := self._table.statistic(key, statistic)) is not None]

    def cpu(self, link: str, quantity: str) -> list[StyledSeries]:
        """CPU use of both ends together: ``quantity`` is ``cores`` or ``us_per_mib``."""
        found = []
        for pair in self._styles:
            ends = [
                self._table.get(SeriesKey(link, *catalogue.CPU_TEST, *pair, f"cpu_{end}_{quantity}"))
                for end in ("client", "server")
            ]
            if ends[0] is not None and ends[1] is not None:
                found.append(self._styled(_sum(ends[0], ends[1], f"cpu_{quantity}")))
        return [each for each in found if each.series.values]

    def mesh(self, link: str, mesh: Mesh) -> list[StyledSeries]:
        """What all nodes of a mesh moved together, over the number of nodes, one series for each program that ran."""
        keys = (SeriesKey(link, mesh.level, MESH_TEST, *pair, mesh.metric) for pair in self._styles)
        return [self._styled(series) for key in keys if (series := self._table.get(key)) is not None]

    def series_of(self, key: SeriesKey, statistic: str | None = None) -> Series | None:
        """A series by its key: the typical values, or those of a statistic."""
        return self._table.get(key) if statistic is None else self._table.statistic(key, statistic)

    def _styled(self, series: Series) -> StyledSeries:
        return StyledSeries(series, self._styles[series.key.interconnect, series.key.variant])

    def subject(self, series: list[StyledSeries]) -> StyledSeries | None:
        """The series that is held against TCP."""
        return next((each for each in series if self.is_subject(each)), None)

    def references(self, series: list[StyledSeries]) -> list[StyledSeries]:
        """The TCP series that the subject is held against."""
        return [each for each in series if self.is_reference(each)]

    @staticmethod
    def is_subject(series: StyledSeries) -> bool:
        """Whether it is the series that is held against TCP."""
        return _pair(series) == catalogue.SUBJECT

    @staticmethod
    def is_reference(series: StyledSeries) -> bool:
        """Whether it is a TCP that the subject is held against."""
        return _pair(series) in catalogue.REFERENCES

    def speed_ratios(self, series: list[StyledSeries]) -> dict[str, list[SpeedRatio]]:
        """Soft RoCE against blocking TCP, and against the TCP that is best at each size."""
        subject, references = self.subject(series), self.references(series)
        if subject is None or not references:
            return {}
        if subject.series.key not in self._speed_ratios:
            self._speed_ratios[subject.series.key] = self._compare(subject, references)
        return self._speed_ratios[subject.series.key]

    def _compare(self, subject: StyledSeries, references: list[StyledSeries]) -> dict[str, list[SpeedRatio]]:
        found = {"best TCP": self._ratios(subject, references)}
        blocking = [each for each in references if _pair(each) == catalogue.BLOCKING]
        if blocking and len(references) > 1:
            found = {"TCP blocking": self._ratios(subject, blocking)} | found
        return {name: ratios for name, ratios in found.items() if ratios}

    def _ratios(self, subject: StyledSeries, references: list[StyledSeries]) -> list[SpeedRatio]:
        found = []
        for size in subject.series.sizes:
            reference = best_at(references, size)
            if reference is not None and (speed := speed_ratio(subject, reference, size)) is not None:
                found.append(speed)
        return found


def lower_is_better(series: Series) -> bool:
    """Whether a small value is the good one."""
    return catalogue.metric(series.key.metric).better == "lower"


def best_at(candidates: list[StyledSeries], size_bytes: int) -> StyledSeries | None:
    """The candidate with the best median at a size."""
    measured = [each for each in candidates if size_bytes in each.series.values]
    if not measured:
        return None
    choose = min if lower_is_better(measured[0].series) else max
    return choose(measured, key=lambda each: each.series.spread(size_bytes).median)


def speed_ratio(subject: StyledSeries, reference: StyledSeries, size_bytes: int) -> SpeedRatio | None:
    """How many times as good one series is as another at a size; None where that cannot be said."""
    ratio = subject.series.ratio_to(reference.series, size_bytes)
    if ratio is None:
        return None
    ratio = ratio.inverse() if lower_is_better(subject.series) else ratio
    return SpeedRatio(size_bytes, ratio, subject, reference)


def link_title(link: LinkInfo) -> str:
    """A link profile in words: ``ethernet-1g (through a switch, 1 Gbps, MTU 1500)``."""
    parts = [catalogue.LINK_TEXTS.get(link.kind, link.kind)]
    parts.append("unshaped" if link.rate_mbps is None else text.quantity(link.rate_mbps, "Mbps").replace(".00", ""))
    if link.uplink_rate_mbps is not None:
        parts.append(f"uplinks of {text.quantity(link.uplink_rate_mbps, 'Mbps').replace('.00', '')}")
    if link.mtu_bytes:
        parts.append(f"MTU {link.mtu_bytes}")
    return f"{link.id} ({', '.join(parts)})"


def _pair(series: StyledSeries) -> tuple[str, str]:
    return series.series.key.interconnect, series.series.key.variant


def _sum(first: Series, second: Series, metric: str) -> Series:
    values = {
        size: tuple(a + b for a, b in zip(mine, second.values[size], strict=True))
        for size, mine in first.values.items()
        if len(mine) == len(second.values.get(size, ()))
    }
    return Series(first.key._replace(metric=metric), first.unit, first.statistic, values)
