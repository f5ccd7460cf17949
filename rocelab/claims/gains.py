"""Rules about systems: by how much one link makes them better than another, and how much of its link a sort uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from rocelab.claims.finding import BELOW_ONE, Finding, Number, Range, Verdict, combined, hold, together
from rocelab.claims.numbers import change, value
from rocelab.claims.rules import Gain, Gains, LinkSide, Sorts
from rocelab.claims.sides import Place, Sides
from rocelab.results import RunInfo, Sample
from rocelab.stats import Series, SeriesKey, text


def judge_system(rule: Gains | Sorts, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> Finding:
    """Judges one rule; what the run lacks for it is said."""
    return _judge_gains(rule, sides) if isinstance(rule, Gains) else _judge_sorts(rule, info, sides, samples)


def _judge_gains(rule: Gains, sides: Sides) -> Finding:
    """Every gain that the claim names, on average over the sizes that both sides have."""
    words: list[str] = []
    verdicts: list[Verdict] = []
    for gain in rule.gains:
        percent = _gain(rule, gain, sides)
        if isinstance(percent, str):
            return Finding(Verdict.NOT_CHECKABLE, percent)
        claimed = f"at most {gain.percent:g} %" if gain.at_most else f"{gain.percent:+g} %"
        verdict = hold(percent, _claimed(rule, gain))
        verdicts.append(verdict)
        words.append(f"{gain.name}: {_percent(percent)}, claimed {claimed}: {verdict.of_part}")
    for side in rule.falls:
        verdict, said = _falls(rule, side, sides)
        verdicts.append(verdict)
        words.append(said)
    return Finding(together(verdicts), f"{'; '.join(words)}.")


def _percent(number: Number) -> str:
    return f"{number.words(lambda each: f'{each:+.0f}')} %"


def _gain(rule: Gains, gain: Gain, sides: Sides) -> Number | str:
    """By how many percent the subject is better, with its interval; or what the run lacks."""
    series = []
    for side in (gain.subject, gain.reference):
        found = sides.first(side, Place(side.link, rule.level, gain.test, gain.metric))
        if found is None:
            return f"This run holds no {gain.test} samples of {side.name} on the link '{side.link}'."
        series.append(found)
    subject, reference = series
    ratios = [ratio for size in subject.sizes if (ratio := subject.ratio_to(reference, size)) is not None]
    if not ratios:
        return f"{gain.name}: no size was measured on both sides."
    sign = -1 if gain.better == "lower" else 1
    percents = [Number.of(ratio).mapped(lambda times: 100 * sign * (times - 1)) for ratio in ratios]
    return combined(percents, fmean if gain.of == "mean" else max)


def _claimed(rule: Gains, gain: Gain) -> Range:
    most = gain.percent + rule.slack_percent
    if gain.at_most:
        return Range(-rule.slack_percent, most)
    least = gain.percent - rule.slack_percent
    return Range(min(rule.share * gain.percent, least), max(gain.percent / rule.share, most))


def _falls(rule: Gains, side: LinkSide, sides: Sides) -> tuple[Verdict, str]:
    """Whether what the first gain is about is lower at the largest size than at the smallest."""
    first = rule.gains[0]
    series = sides.first(side, Place(side.link, rule.level, first.test, first.metric))
    times = None if series is None else change(series, series.sizes[-1], series.sizes[0])
    if series is None or times is None or len(series.sizes) < 2:
        return Verdict.NOT_CHECKABLE, f"{side.name}: too few sizes to tell how it goes on as files grow"
    verdict = hold(times, BELOW_ONE)
    goes = {Verdict.REPRODUCED: "falls", Verdict.CONTRADICTED: "does not fall"}.get(verdict, verdict.of_part)
    percent = _percent(times.mapped(lambda each: 100 * (each - 1)))
    ends = f"from {text.size(series.sizes[0])} to {text.size(series.sizes[-1])}"
    return verdict, f"{side.name}: {percent} {ends}: {goes}"


def _judge_sorts(rule: Sorts, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> Finding:
    """All sorts were right and quick enough, and left most of the link unused."""
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
        times_s = _numbers(_summed(of_side, rule.seconds, None))
        rates_mbps = _numbers(_summed(of_side, (rule.metric,), "mean"))
        shares = [number.scaled(1 / link.rate_mbps) for number in rates_mbps]
        peak_mbps = max(sample.value or 0.0 for sample in of_side if _is(sample, (rule.metric,), "max"))
        verdicts += [hold(number, Range(at_most=rule.within_s)) for number in times_s]
        verdicts += [hold(number, Range(at_most=rule.at_most)) for number in shares]
        # No sort may send faster than its link can carry: once is too often.
        verdicts += [Verdict.CONTRADICTED] if peak_mbps > link.rate_mbps * _COUNTING else []
        words.append(
            f"{side.name}: {_sorts(of_side)} in {_most(times_s, _whole)} s with generation and validation; a worker "
            f"sends {_most(rates_mbps, _mbps)} on average, {_most(shares, _percentage)} % of its cable, and "
            f"{_mbps(peak_mbps)} at most"
        )
    return Finding(together(verdicts), f"{'; '.join(words)}.")


#: The counters are read between packets, and a burst may leave at once.
_COUNTING = 1.1


def _sorts(samples: list[Sample]) -> str:
    runs = {sample.key for sample in samples}
    return f"{text.plural(len(runs), 'sort')} of {text.size(max(key.size_bytes or 0 for key in runs))}"


def _most(numbers: list[Number], shown: Callable[[float], str]) -> str:
    return combined(numbers, max).words(shown)


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _mbps(rate_mbps: float) -> str:
    return text.quantity(rate_mbps, "Mbps")


def _percentage(share: float) -> str:
    return f"{100 * share:.1f}"


def _is(sample: Sample, metrics: tuple[str, ...], statistic: str | None) -> bool:
    return sample.metric in metrics and statistic in (None, sample.statistic)


def _summed(samples: list[Sample], metrics: tuple[str, ...], statistic: str | None) -> Series:
    """The sum of some metrics of each run, as a series over the sizes."""
    sums: dict[int, dict[int, float]] = {}
    for sample in samples:
        if sample.value is not None and _is(sample, metrics, statistic):
            of_size = sums.setdefault(sample.size_bytes or 0, {})
            of_size[sample.repetition] = of_size.get(sample.repetition, 0.0) + sample.value
    one = samples[0]
    key = SeriesKey(one.link, one.level, one.test, one.interconnect, one.variant, metrics[0], one.nodes, one.ranks)
    return Series(key, one.unit, "mean", {size: tuple(by.values()) for size, by in sorted(sums.items())})


def _numbers(series: Series) -> list[Number]:
    return [value(series, size) for size in series.sizes]
