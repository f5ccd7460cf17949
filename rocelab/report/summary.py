"""The answer in ten seconds: a sentence and a few numbers for each link, and the table of chosen sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.report import catalogue
from rocelab.report.catalogue import Mesh, Test
from rocelab.report.gallery import DataTable
from rocelab.report.meshes import shares
from rocelab.report.model import RunModel, StyledSeries, link_title, lower_is_better
from rocelab.results import LinkInfo
from rocelab.stats import NO_SIZE, Side, ratio_to_best, text

CHOSEN_SIZES_BYTES = (8, 64, 1024, 8192, 65536, 1 << 20, 4 << 20)
"""Sizes of the summary table: small messages, the eager range of MPI, pages, large transfers."""
_SMALL_BYTES = 64
_CPU_BYTES = 1 << 20


@dataclass(frozen=True)
class Tile:
    """One number that sums up a test on a link."""

    title: str
    headline: str
    verdict: str
    """``better``, ``worse`` or ``unclear``, for the colour; the headline says it in words."""
    lines: tuple[tuple[str, str], ...]
    """Series and its value."""


@dataclass(frozen=True)
class LinkSummary:
    """What a run says about Soft RoCE and TCP on a link."""

    title: str
    sentence: str
    tiles: tuple[Tile, ...]


def link_summaries(model: RunModel) -> list[LinkSummary]:
    """One for each link about which there is something to say."""
    made = (LinkSummary(link_title(link), _sentence(model, link), tuple(_tiles(model, link))) for link in model.links)
    return [each for each in made if each.sentence or each.tiles]


def _sentence(model: RunModel, link: LinkInfo) -> str:
    parts = []
    for test in model.tests:
        points = model.speed_ratios(model.series(link.id, test)).get(catalogue.BEST_TCP, [])
        if points:
            better = sum(point.ratio.side is Side.ABOVE for point in points)
            worse = sum(point.ratio.side is Side.BELOW for point in points)
            losses = f" (and loses at {worse})" if worse else ""
            parts.append(f"{better} of {len(points)} in {text.lower_first(test.title)}{losses}")
    if not parts:
        return ""
    return f"Against the best TCP, Soft RoCE wins at this many message sizes: {text.listing(parts)}."


def _tiles(model: RunModel, link: LinkInfo) -> list[Tile]:
    tiles = []
    for test in model.tests:
        series = model.series(link.id, test)
        if test.metric == "latency_us":
            size = _nearest_size(model, series, _SMALL_BYTES)
            title = f"{test.title}, {text.size(size)} messages"
            tiles.append(_tile(model, title, "as fast as", [(each, size) for each in series]))
        elif test.metric == "bandwidth_mbps":
            peaks = [(each, _peak_size(each)) for each in series]
            tiles.append(_tile(model, f"Peak {text.lower_first(test.title)}", "the bandwidth of", peaks))
    cpu = model.cpu(link.id, "us_per_mib")
    if cpu:
        size = _nearest_size(model, cpu, _CPU_BYTES)
        title = f"CPU time per MiB moved, {text.size(size)} messages"
        tiles.append(_tile(model, title, "the CPU time of", [(each, size) for each in cpu]))
    tiles += [
        _tile(model, test.title, "as fast as", [(each, NO_SIZE) for each in model.series(link.id, test)])
        for test in model.tests_without_sizes
        if test.metric != "overlap_percent"
    ]
    tiles += [_mesh_tile(mesh, series) for mesh in catalogue.MESHES if (series := model.mesh(link.id, mesh))]
    return [tile for tile in tiles if tile is not None]


def _mesh_tile(mesh: Mesh, series: Sequence[StyledSeries]) -> Tile:
    """The most servers that every program had: what they moved, and how linear that is."""
    common = set.intersection(*(set(each.series.sizes) for each in series)) or set(series[0].series.sizes)
    nodes = max(common)
    measured = [each for each in series if nodes in each.series.values]
    parts = text.listing([f"{100 * shares(mesh, each)[nodes]:.0f} %" for each in measured])
    lines = tuple((each.label, text.quantity(each.series.spread(nodes).typical, each.series.unit)) for each in measured)
    of = "linear" if mesh.grows else "what the fewest moved"
    return Tile(f"{mesh.title}, {nodes} servers", f"{parts} of {of}", "unclear", lines)


def _nearest_size(model: RunModel, series: list[StyledSeries], wanted_bytes: int) -> int:
    """The largest size up to the wanted one that the subject has; the smallest if all are larger."""
    subject = model.subject(series)
    if subject is None:
        return wanted_bytes
    return max((size for size in subject.series.sizes if size <= wanted_bytes), default=subject.series.sizes[0])


def _peak_size(series: StyledSeries) -> int:
    return max(series.series.spreads(), key=lambda pair: pair[1].typical)[0]


_Chosen = tuple[StyledSeries, int]


def _tile(model: RunModel, title: str, comparison: str, chosen: Sequence[_Chosen]) -> Tile | None:
    """Holds the subject against the best reference, each at the size chosen for it."""
    measured = [(each, size) for each, size in chosen if size in each.series.values and not each.style.check]
    series = [each for each, _ in measured]
    chosen_subject, chosen_references = model.subject(series), model.references(series)
    subject = next((pair for pair in measured if pair[0] is chosen_subject), None)
    references = [pair for pair in measured if pair[0] in chosen_references]
    lines = tuple(
        (each.label, text.quantity(each.series.spread(size).typical, each.series.unit)) for each, size in measured
    )
    if not lines:
        return None
    lower = lower_is_better(measured[0][0].series)
    if subject is None and len(measured) > 1:
        # Nothing is held against the rest, as between adapters that are simulated.
        best = (min if lower else max)(measured, key=lambda pair: pair[0].series.spread(pair[1]).typical)
        return Tile(title, f"best: {best[0].label}", "unclear", lines)
    values = {each.label: each.series.values[size] for each, size in references}
    if subject is None or not values:
        return Tile(title, "no comparison", "unclear", lines)
    mine = subject[0].series.values[subject[1]]
    if min(*mine, *(min(theirs) for theirs in values.values())) <= 0:
        return Tile(title, "no comparison", "unclear", lines)
    found = ratio_to_best(mine, values, better="lower" if lower else "higher", centre=subject[0].series.centre)
    factor = found.ratio
    goodness = factor.inverse() if lower else factor
    # Time per message turns round into speed; CPU time stays what it is, a cost.
    shown = goodness if comparison == "as fast as" else factor
    if goodness.side is Side.UNCLEAR:
        return Tile(title, f"no clear difference from {found.best}: {text.times_range(shown)}", "unclear", lines)
    verdict = "better" if goodness.side is Side.ABOVE else "worse"
    return Tile(title, f"{text.times(shown.estimate)} {comparison} {found.best}", verdict, lines)


def chosen_sizes_tables(model: RunModel, link: LinkInfo, level: str | None = None) -> list[DataTable]:
    """One for each level that was measured on the link, or for one of them."""
    levels = dict.fromkeys(test.level for test in model.every_test if level in (None, test.level))
    found = (
        _chosen_sizes_table(model, link, [test for test in model.every_test if test.level == level]) for level in levels
    )
    return [table for table in found if table is not None]


def _chosen_sizes_table(model: RunModel, link: LinkInfo, tests: Sequence[Test]) -> DataTable | None:
    """All series at a few sizes, and Soft RoCE over the best TCP."""
    measured = {each.label for test in tests for each in model.series(link.id, test)}
    labels = [style.label for style in model.styles if style.label in measured and not style.check]
    rows = []
    for test in tests:
        series = {each.label: each for each in model.series(link.id, test)}
        points = {
            point.size_bytes: point
            for point in model.speed_ratios(list(model.series(link.id, test))).get(catalogue.BEST_TCP, [])
        }
        for size in (NO_SIZE, *CHOSEN_SIZES_BYTES):
            cells = [typical_words(series.get(label), size) or "none" for label in labels]
            if any(cell != "none" for cell in cells):
                point = points.get(size)
                speed = "none" if point is None else f"{text.times_range(point.ratio)}, {point.reference.label}"
                rows.append((row_name(test, size).replace(" ", "\u00a0"), *cells, speed))
    if not rows:
        return None
    subject = next((each for test in tests if (each := model.subject(model.series(link.id, test))) is not None), None)
    head = ("Test and message size", *labels, f"Speed ratio {subject.label if subject else 'Soft RoCE'} / best TCP")
    level = "" if tests[0].level == "network" else f"{tests[0].level.upper()}, "
    table = DataTable(f"Values at chosen sizes, {level}{link_title(link)}", head, tuple(rows))
    return table.without_empty_end("none")


def row_name(test: Test, size_bytes: int) -> str:
    """A test at a size."""
    return test.short if size_bytes == NO_SIZE else f"{test.short}, {text.size(size_bytes)}"


def typical_words(series: StyledSeries | None, size_bytes: int) -> str:
    """What stands for the repetitions at a size, in words; empty where there is none."""
    if series is None or size_bytes not in series.series.values:
        return ""
    return text.quantity(series.series.spread(size_bytes).typical, series.series.unit)
