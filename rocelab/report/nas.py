"""The section on the NAS Parallel Benchmarks: how long each program took over each interconnect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import altair as alt

from rocelab import peers
from rocelab.report import catalogue
from rocelab.report.catalogue import SeriesStyle
from rocelab.report.figures import ROW_HEIGHT_PX, title_of, with_data
from rocelab.report.gallery import DataTable, Figure, Section
from rocelab.report.model import RunModel, link_title
from rocelab.results import LinkInfo, Sample
from rocelab.stats import BestRatio, ratio_to_best, spread, text

_TIME, _RATE, _IN_MPI = catalogue.NAS_METRIC, "mops", "mpi_percent"
#: From the smallest to the largest.
_CLASSES: Final = "SWABCD"
#: With fewer repetitions an interval would say nothing.
_INTERVAL_FROM: Final = 3
_SHOWN: Final = {_TIME: "max", _RATE: "total", _IN_MPI: "mean"}
_TEXT: Final = (
    "Drawn is the time that the slowest process took, with the range of the repetitions: lower is better. Each program "
    "compares its results with the published ones, and a run with other results does not count. The share in MPI is "
    "the mean over the processes; it includes waiting for each other, also for a processor. The ratio holds Soft RoCE "
    "against the TCP that is best, both by their medians; above 1\u00d7, Soft RoCE is faster."
)

_SIMULATED_TEXT: Final = (
    "Drawn is the simulated time that the slowest process took: lower is better. What the processors do is told to the "
    "simulator and not measured; where their speed is calibrated, one interconnect takes as long as its source says, "
    "and the others are predictions. The share in MPI is the mean over the processes; it includes waiting for each "
    "other."
)


@dataclass(frozen=True)
class Job:
    """A program with a class on so many processes."""

    test: str
    nodes: int
    ranks: int

    @property
    def title(self) -> str:
        """``FT A, 4 ranks``."""
        return f"{self.test.upper().replace('.', ' ')}, {text.plural(self.ranks, 'rank')}"


_Pair = tuple[str, str]
_ByPair = dict[_Pair, dict[str, list[float]]]
_Values = dict[Job, _ByPair]


def sections(model: RunModel) -> list[Section]:
    """One section, if the run has these programs."""
    columns = [
        (link_title(link), _figure(model, link, found)) for link in model.links if (found := _values(model, link))
    ]
    if not columns:
        return []
    links = tuple((title, (figure,)) for title, figure in columns)
    words = _SIMULATED_TEXT if model.info.fabric == "virtual" else _TEXT
    return [Section("nas", "NAS Parallel Benchmarks", words, links, ())]


def tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """What the programs took on a link; none if it has none."""
    found = _values(model, link)
    return [_table(model, link, found)] if found else []


def brief_tables(model: RunModel, link: LinkInfo) -> list[DataTable]:
    """The same for a terminal: Soft RoCE beside the best TCP alone."""
    if model.info.fabric == "virtual":
        return []  # There is no Soft RoCE beside TCP.
    found = _values(model, link)
    rows = tuple(_brief_row(model, job, by_pair) for job, by_pair in found.items())
    head = ("Program", "Soft RoCE", "in MPI", "Best TCP", "in MPI", "To best TCP")
    return [DataTable(f"{link_title(link)}, NAS", head, rows)] if found else []


def _values(model: RunModel, link: LinkInfo) -> _Values:
    """By program and then by interconnect and variant, the values of each metric, one for each repetition."""
    found: _Values = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for sample in model.samples:
        if _is_shown(sample) and sample.link == link.id:
            assert sample.value is not None
            job = Job(sample.test, sample.nodes, sample.ranks)
            found[job][sample.interconnect, sample.variant][sample.metric].append(sample.value)
    return dict(sorted(found.items(), key=lambda item: _CLASSES.index(item[0].test.rpartition(".")[2])))


def _is_shown(sample: Sample) -> bool:
    return sample.level == catalogue.NAS_LEVEL and sample.ok and _SHOWN.get(sample.metric) == sample.statistic


def _styles(model: RunModel, found: _Values) -> dict[_Pair, SeriesStyle]:
    pairs = sorted({pair for by_pair in found.values() for pair in by_pair}, key=lambda each: _rank(*each))
    return {pair: catalogue.series_style(*pair, spare, model.default_control) for spare, pair in enumerate(pairs)}


def _rank(interconnect: str, variant: str) -> tuple[tuple[int, str], str, str]:
    return catalogue.series_rank(interconnect, variant), interconnect, variant


def _table(model: RunModel, link: LinkInfo, found: _Values) -> DataTable:
    rows = []
    for job, by_pair in found.items():
        for pair, style in _styles(model, found).items():
            if pair in by_pair:
                rows.append((job.title, style.label, *_cells(by_pair[pair]), _ratio_words(model, by_pair, pair)))
    head = ("Program", "Over", "Time", "Mop/s", "In MPI", "To best TCP")
    return DataTable(f"NAS Parallel Benchmarks, {link.id}: median (smallest to largest)", head, tuple(rows), "Values")


def _cells(metrics: dict[str, list[float]]) -> tuple[str, str, str]:
    time, rate, in_mpi = (metrics.get(name) for name in (_TIME, _RATE, _IN_MPI))
    return (
        text.quantity_range(spread(time), "s") if time else "none",
        text.number(spread(rate).median) if rate else "none",
        f"{text.number(spread(in_mpi).median)} %" if in_mpi else "not told",
    )


def _to_best(by_pair: _ByPair, pair: _Pair) -> BestRatio[_Pair] | None:
    """Time of this, which is Soft RoCE, over the time of the best TCP."""
    mine = by_pair[pair].get(_TIME, [])
    tcps = {
        each: metrics[_TIME]
        for each, metrics in by_pair.items()
        if each[0] == peers.TCP and min(metrics.get(_TIME, []), default=0.0) > 0
    }
    if pair[0] != peers.SOFT_ROCE or not tcps or min(mine, default=0.0) <= 0:
        return None
    return ratio_to_best(mine, tcps, better="lower")


def _ratio_words(model: RunModel, by_pair: _ByPair, pair: _Pair) -> str:
    """How many times as fast Soft RoCE is as the best TCP, and which that is."""
    found = _to_best(by_pair, pair)
    if found is None:
        return ""
    speed, fewest = found.ratio.inverse(), min(len(by_pair[each][_TIME]) for each in (pair, found.best))
    words = text.times_range(speed) if fewest >= _INTERVAL_FROM else text.times(speed.estimate)
    return f"{words}, {catalogue.series_style(*found.best, 0, model.default_control).label}"


def _brief_row(model: RunModel, job: Job, by_pair: _ByPair) -> tuple[str, ...]:
    pairs = [(peers.SOFT_ROCE, variant) for variant in peers.SUBJECTS["mpi"]["polling"]]
    subject = next((pair for pair in pairs if pair in by_pair), None)
    found = _to_best(by_pair, subject) if subject else None
    cells = []
    for pair in (subject, found.best if found else None):
        metrics = by_pair[pair] if pair else {}
        time, in_mpi = (metrics.get(name) for name in (_TIME, _IN_MPI))
        cells.append(text.quantity(spread(time).median, "s") if time else "")
        cells.append(f"{text.number(spread(in_mpi).median)} %" if in_mpi else "")
    return (job.title, *cells, _ratio_words(model, by_pair, subject) if subject else "")


def _rows(found: _Values, styles: dict[_Pair, SeriesStyle]) -> Iterator[dict[str, Any]]:
    for job, by_pair in found.items():
        for pair, metrics in by_pair.items():
            if times := metrics.get(_TIME):
                summary = spread(times)
                words = text.quantity_range(summary, "s")
                yield {
                    "job": job.title,
                    "series": styles[pair].label,
                    "value": summary.median,
                    "low": summary.low,
                    "high": summary.high,
                    "Time": words,
                }


def _figure(model: RunModel, link: LinkInfo, found: _Values) -> Figure:
    styles = _styles(model, found)
    rows = list(_rows(found, styles))
    keys = tuple(styles.values())
    title, subtitle = "Time of each program", link_title(link)
    height_px = len(found) * max(ROW_HEIGHT_PX, 14 * len(keys))
    words = " ".join(f"{row['job']}, {row['series']}: {row['Time']}." for row in rows)
    interactive = _chart(found, keys, legend=False).properties(width="container", height=height_px)
    static = _chart(found, keys, legend=True).properties(width=600, height=height_px, title=title_of(title, subtitle))
    return Figure(
        f"nas-{link.id}",
        title,
        subtitle,
        f"{title}, {subtitle}. {words}",
        with_data(interactive.to_dict(validate=False), points=rows),
        with_data(static.to_dict(validate=False), points=rows),
        (_table(model, link, found),),
        height_px,
        keys,
        tuple(style.label for style in keys),
    )


def _chart(found: _Values, keys: Sequence[SeriesStyle], *, legend: bool) -> alt.LayerChart | alt.FacetChart:
    """A row for each program, and in it a line for each series: a point at the median, a bar over the range."""
    labels = [style.label for style in keys]
    shown = alt.Legend(title=None, orient="bottom", columns=3, symbolOpacity=1) if legend else None
    colours = alt.Scale(domain=labels, range=[style.colour for style in keys])
    shapes = alt.Scale(domain=labels, range=[style.shape for style in keys])
    axis = alt.Axis(title=None, labelLimit=260, ticks=False, domain=False)
    base = alt.Chart(alt.NamedData("points")).encode(
        y=alt.Y("job:N", sort=[job.title for job in found], axis=axis, scale=alt.Scale(paddingInner=0.25)),
        yOffset=alt.YOffset("series:N", sort=labels),
        color=alt.Color("series:N", scale=colours, legend=shown),
        tooltip=[alt.Tooltip(f"{name}:N", title=heading) for name, heading in _TOOLTIP.items()],
    )
    scale = alt.Scale(type="log", nice=False, padding=12)
    time = alt.X("value:Q", scale=scale, axis=alt.Axis(title="Time, seconds", format="~g", tickCount=6))
    bars = base.mark_rule(strokeWidth=5, opacity=0.4).encode(x=alt.X("low:Q", scale=scale), x2="high:Q")
    points = base.mark_point(size=45, filled=True, opacity=1).encode(
        x=time, shape=alt.Shape("series:N", scale=shapes, legend=shown)
    )
    return alt.layer(bars, points)


_TOOLTIP: Final = {"job": "Program", "series": "Over", "Time": "Time"}
