"""The rule about a sort on several servers: its time, what it uses of their links, and how it grows with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from rocelab.claims.finding import Finding, Number, Range, Verdict, combined, hold, together
from rocelab.claims.numbers import linearities, value
from rocelab.claims.rules import Sorts
from rocelab.claims.sides import Sides
from rocelab.results import LinkInfo, RunInfo, Sample
from rocelab.stats import Series, SeriesKey, text

RECORD_BYTES: Final = 100
"""Of TeraSort: a key of 10 bytes, and 90 more."""
_GROWTH_POINTS: Final = 3
"""Numbers of servers that it takes to tell whether something grows linearly."""


def judge_sorts(rule: Sorts, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> Finding:
    """Judges the rule; what the run lacks for it is said."""
    words: list[str] = []
    verdicts: list[Verdict] = []
    for side in rule.sides:
        of_side = sides.samples(side, rule.level, rule.test, samples)
        failed = [sample for sample in of_side if not sample.ok]
        if failed:
            return Finding(Verdict.CONTRADICTED, f"{side.name}: a sort failed: {failed[0].error}")
        link = info.link(side.link)
        if not of_side or link is None or link.rate_mbps is None:
            return Finding(Verdict.NOT_CHECKABLE, f"This run holds no {rule.test} samples of {side.name}.")
        for workers in sorted({sample.ranks for sample in of_side}):
            found = _judge_on(rule, link, [sample for sample in of_side if sample.ranks == workers])
            verdicts.append(found.verdict)
            words.append(f"{side.name}, {text.plural(workers, 'server')}: {found.summary}")
        growth = _growth(rule, of_side)
        verdicts.append(growth.verdict)
        words.append(f"{side.name}: {growth.summary}")
    return Finding(together(verdicts), f"{'; '.join(words)}.")


def _judge_on(rule: Sorts, link: LinkInfo, samples: Sequence[Sample]) -> Finding:
    """What sorts on one number of servers took, and what they used of the links."""
    assert link.rate_mbps is not None
    workers = samples[0].ranks
    times_s = _summed(samples, rule.seconds)
    limits_s = {size: _limit_s(rule, size, workers) for size in times_s.sizes}
    within = [hold(value(times_s, size), Range(at_most=limit)) for size, limit in limits_s.items()]
    mean, peak = (_part_of(link.rate_mbps, samples, rule.metric, statistic) for statistic in ("mean", "max"))
    mean_fits = hold(mean, Range(at_most=rule.mean_at_most))
    peak_fits = hold(peak, Range(at_most=rule.peak_at_most))
    largest = times_s.sizes[-1]
    runs = {sample.key for sample in samples}
    time_words = value(times_s, largest).words(lambda each: f"{each:.1f}")
    summary = (
        f"{text.plural(len(runs), 'sort')} of {text.size(largest)} in {time_words} s "
        f"({together(within).of_part}: at most {limits_s[largest]:.1f}); a server sends {_percent(mean)} of its link "
        f"on average ({mean_fits.of_part}: at most {100 * rule.mean_at_most:.1f}) and {_percent(peak)} at its peak "
        f"({peak_fits.of_part}: at most {100 * rule.peak_at_most:.0f})"
    )
    return Finding(together([*within, mean_fits, peak_fits]), summary)


def _limit_s(rule: Sorts, size_bytes: int, workers: int) -> float:
    """The time of the source, in proportion to the records of a server."""
    return rule.within_s * (size_bytes / RECORD_BYTES / workers) / (rule.records / rule.servers)


def _part_of(rate_mbps: float, samples: Sequence[Sample], metric: str, statistic: str) -> Number:
    series = _summed(samples, (metric,), statistic)
    return combined((value(series, size) for size in series.sizes), max).scaled(1 / rate_mbps)


def _percent(number: Number) -> str:
    return f"{number.words(lambda each: f'{100 * each:.1f}')} %"


def _growth(rule: Sorts, samples: Sequence[Sample]) -> Finding:
    """Whether what all servers send together grows with their number."""
    series = _summed(samples, (rule.total_metric,), over=lambda sample: sample.ranks)
    if len(series.values) < _GROWTH_POINTS:
        numbers = text.listing([str(each) for each in series.sizes]) or "none"
        needed = f"whether the total grows linearly takes {_GROWTH_POINTS} numbers of servers, and there is {numbers}"
        return Finding(Verdict.NOT_CHECKABLE, needed)
    least = combined(linearities(series).values(), min)
    verdict = hold(least, Range(at_least=rule.linear_at_least))
    ends = f"from {series.sizes[0]} to {series.sizes[-1]} servers"
    words = f"{ends} the total is {_percent(least)} or more of so many times that of one: {verdict.of_part}"
    return Finding(verdict, words)


def _summed(
    samples: Sequence[Sample],
    metrics: tuple[str, ...],
    statistic: str | None = None,
    over: Callable[[Sample], int] = lambda sample: sample.size_bytes or 0,
) -> Series:
    """The sum of some metrics of each run, as a series over the sizes or something else."""
    sums: dict[int, dict[int, float]] = {}
    for sample in samples:
        if sample.value is not None and sample.metric in metrics and statistic in (None, sample.statistic):
            of_size = sums.setdefault(over(sample), {})
            of_size[sample.repetition] = of_size.get(sample.repetition, 0.0) + sample.value
    one = samples[0]
    key = SeriesKey(one.link, one.level, one.test, one.interconnect, one.variant, metrics[0], one.nodes, one.ranks)
    return Series(key, one.unit, "mean", {size: tuple(by.values()) for size, by in sorted(sums.items())})
