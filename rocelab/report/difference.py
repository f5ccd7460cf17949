"""Two runs side by side: what is faster in the second, by how much, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rocelab.report import catalogue
from rocelab.report.model import RunModel, lower_is_better
from rocelab.stats import Ratio, Series, SeriesKey, SeriesTable, Spread, significant


@dataclass(frozen=True, slots=True)
class Difference:
    """One size of one series in both runs."""

    key: SeriesKey
    size_bytes: int
    unit: str
    first: Spread
    second: Spread
    goodness: Ratio
    """Above one: the second run is better, whichever way the metric is good."""
    significant: bool
    """Still a difference when the number of comparisons is taken into account."""


@dataclass(frozen=True, slots=True)
class SeriesDifference:
    """A series summed up over its sizes."""

    key: SeriesKey
    sizes: int
    better: int
    worse: int
    typical: float
    """Geometric mean of the ratios over the sizes; above one: the second run is better."""
    extreme: Difference
    """Where it differs most."""


def differences(first: RunModel, second: RunModel, metrics: Iterable[str] = ()) -> list[Difference]:
    """Every size that both runs have, for the main metric of each test or for the metrics named."""
    tables = SeriesTable(first.samples), SeriesTable(second.samples)
    wanted = set(metrics)
    keys = [key for key in tables[0] if key.metric in wanted] if wanted else _main_keys(first, tables[0])
    found: list[tuple[Series, Series, int, Ratio]] = []
    for key in keys:
        before, after = tables[0].get(key), tables[1].get(key)
        if before is None or after is None:
            continue
        for size in before.sizes:
            ratio = after.ratio_to(before, size)
            if ratio is not None:
                found.append((before, after, size, ratio.inverse() if lower_is_better(before) else ratio))
    flags = significant([ratio.p_value for *_, ratio in found])
    return [
        Difference(before.key, size, before.unit, before.spread(size), after.spread(size), ratio, flag)
        for (before, after, size, ratio), flag in zip(found, flags, strict=True)
    ]


def _main_keys(model: RunModel, table: SeriesTable) -> list[SeriesKey]:
    main = {(test.level, test.test): test.metric for test in model.every_test}
    keys = [key for key in table if main.get((key.level, key.test)) == key.metric]
    tests = list(main)
    return sorted(
        keys,
        key=lambda key: (
            [link.id for link in model.links].index(key.link),
            tests.index((key.level, key.test)),
            catalogue.series_rank(key.interconnect, key.variant),
        ),
    )


def by_series(found: Sequence[Difference]) -> list[SeriesDifference]:
    """Sums up the sizes of each series, in the order they came."""
    groups: dict[SeriesKey, list[Difference]] = {}
    for difference in found:
        groups.setdefault(difference.key, []).append(difference)
    return [_summed(key, group) for key, group in groups.items()]


def _summed(key: SeriesKey, group: list[Difference]) -> SeriesDifference:
    logs = [math.log(each.goodness.estimate) for each in group]
    return SeriesDifference(
        key,
        len(group),
        sum(each.significant and each.goodness.estimate > 1 for each in group),
        sum(each.significant and each.goodness.estimate < 1 for each in group),
        math.exp(sum(logs) / len(logs)),
        max(group, key=lambda each: abs(math.log(each.goodness.estimate))),
    )


def other_conditions(first: RunModel, second: RunModel) -> list[tuple[str, str, str]]:
    """What else differs between two runs, and may be the reason: name, in the first, in the second."""
    pairs = [
        (name, str(mine), str(theirs))
        for name, mine, theirs in _conditions(first, second)
        if mine != theirs and not (mine is None and theirs is None)
    ]
    tools = sorted({*first.info.provenance.tools, *second.info.provenance.tools})
    for tool in tools:
        mine = first.info.provenance.tools.get(tool, "not recorded")
        theirs = second.info.provenance.tools.get(tool, "not recorded")
        if mine != theirs:
            pairs.append((tool, mine, theirs))
    return pairs


def _conditions(first: RunModel, second: RunModel) -> list[tuple[str, object, object]]:
    a, b = first.info.provenance, second.info.provenance
    return [
        ("study", first.info.study, second.info.study),
        ("status", first.info.status, second.info.status),
        ("repetitions", first.info.repetitions, second.info.repetitions),
        ("links", [link.id for link in first.info.links], [link.id for link in second.info.links]),
        ("machine", a.machine, b.machine),
        ("CPU", f"{a.cpu_model}, {a.cores} cores", f"{b.cpu_model}, {b.cores} cores"),
        ("kernel", a.kernel, b.kernel),
        ("distribution", a.distribution, b.distribution),
        ("rocelab", a.rocelab_version, b.rocelab_version),
        ("urxe", a.urxe_version, b.urxe_version),
        ("commit", a.git_commit, b.git_commit),
        ("uncommitted changes", a.git_dirty, b.git_dirty),
    ]
