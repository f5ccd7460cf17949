"""Rules about systems: by how much one link makes them better than another, and how much of its link a sort uses."""

from __future__ import annotations

from statistics import fmean

from rocelab.claims.finding import Finding, Verdict
from rocelab.claims.model import Gain, Gains, LinkSide, Sorts
from rocelab.results import RunInfo, Sample
from rocelab.stats import Series, SeriesKey, SeriesTable, text


def judge_gains(rule: Gains, table: SeriesTable) -> Finding:
    """Every gain that the claim names, on average over the sizes that both sides have."""
    words: list[str] = []
    verdicts: list[Verdict] = []
    for gain in rule.gains:
        found = _gain(rule, gain, table)
        if isinstance(found, str):
            return Finding(Verdict.NOT_CHECKABLE, found)
        percent, low, high = found
        verdict = _verdict(rule, gain, percent, low, high)
        verdicts.append(verdict)
        spread = "" if low is None or high is None else f" ({low:+.0f} to {high:+.0f})"
        claimed = f"at most {gain.percent:g} %" if gain.at_most else f"{gain.percent:+g} %"
        said = "undecided" if verdict is Verdict.NOT_CHECKABLE else verdict.value
        words.append(f"{gain.name}: {percent:+.0f} %{spread}, claimed {claimed}: {said}")
    for side in rule.falls:
        verdict, said = _falls(rule, side, table)
        verdicts.append(verdict)
        words.append(said)
    return Finding(_together(verdicts), f"{'; '.join(words)}.")


def _together(verdicts: list[Verdict]) -> Verdict:
    if Verdict.CONTRADICTED in verdicts:
        return Verdict.CONTRADICTED
    return Verdict.REPRODUCED if set(verdicts) == {Verdict.REPRODUCED} else Verdict.NOT_CHECKABLE


def _series(level: str, test: str, metric: str, side: LinkSide, table: SeriesTable) -> Series | None:
    wanted = SeriesKey(side.link, level, test, side.interconnect, side.variant, metric)
    key = next((key for key in table if key._replace(nodes=wanted.nodes, ranks=wanted.ranks) == wanted), None)
    return None if key is None else table.get(key)


def _gain(rule: Gains, gain: Gain, table: SeriesTable) -> tuple[float, float | None, float | None] | str:
    """By how many percent the subject is better, with its interval; or what the run lacks."""
    series = []
    for side in (gain.subject, gain.reference):
        found = _series(rule.level, gain.test, gain.metric, side, table)
        if found is None:
            return f"This run holds no {gain.test} samples of {side.name} on the link '{side.link}'."
        series.append(found)
    subject, reference = series
    ratios = [ratio for size in subject.sizes if (ratio := subject.ratio_to(reference, size)) is not None]
    if not ratios:
        return f"{gain.name}: no size was measured on both sides."
    ratios = [ratio.inverse() for ratio in ratios] if gain.better == "lower" else ratios
    lows = [ratio.low for ratio in ratios if ratio.low is not None]
    highs = [ratio.high for ratio in ratios if ratio.high is not None]
    known = len(lows) == len(highs) == len(ratios)
    return (
        100 * (fmean(ratio.estimate for ratio in ratios) - 1),
        100 * (fmean(lows) - 1) if known else None,
        100 * (fmean(highs) - 1) if known else None,
    )


def _verdict(rule: Gains, gain: Gain, percent: float, low: float | None, high: float | None) -> Verdict:
    if gain.at_most:
        if percent <= gain.percent + rule.slack_percent:
            return Verdict.REPRODUCED
        clear = low is not None and low > gain.percent + rule.slack_percent
        return Verdict.CONTRADICTED if clear else Verdict.NOT_CHECKABLE
    least = rule.share * gain.percent
    if percent >= least:
        return Verdict.REPRODUCED
    return Verdict.CONTRADICTED if high is not None and high < least else Verdict.NOT_CHECKABLE


def _falls(rule: Gains, side: LinkSide, table: SeriesTable) -> tuple[Verdict, str]:
    """Whether what the first gain is about is lower at the largest size than at the smallest."""
    first = rule.gains[0]
    series = _series(rule.level, first.test, first.metric, side, table)
    if series is None or len(series.sizes) < 2:
        return Verdict.NOT_CHECKABLE, f"{side.name}: too few sizes to tell how it goes on as files grow"
    smallest, largest = series.sizes[0], series.sizes[-1]
    before, after = series.spread(smallest).median, series.spread(largest).median
    change = f"{side.name}: {100 * (after / before - 1):+.0f} % from {text.size(smallest)} to {text.size(largest)}"
    apart = max(series.values[largest]) < min(series.values[smallest])
    if apart:
        return Verdict.REPRODUCED, f"{change}: falls"
    rises = min(series.values[largest]) >= max(series.values[smallest])
    return (Verdict.CONTRADICTED, f"{change}: rises") if rises else (Verdict.NOT_CHECKABLE, f"{change}: undecided")


def judge_sorts(rule: Sorts, info: RunInfo, samples: list[Sample]) -> Finding:
    """All sorts were right and quick enough, and left most of the link unused."""
    words: list[str] = []
    verdict = Verdict.REPRODUCED
    for side in rule.sides:
        of_side = [
            sample
            for sample in samples
            if (sample.level, sample.test) == (rule.level, rule.test)
            and (sample.link, sample.interconnect, sample.variant) == (side.link, side.interconnect, side.variant)
        ]
        failed = [sample for sample in of_side if not sample.ok]
        if failed:
            return Finding(Verdict.CONTRADICTED, f"{side.name}: a sort failed: {failed[0].error}")
        link = info.link(side.link)
        if not of_side or link is None or link.rate_mbps is None:
            return Finding(Verdict.NOT_CHECKABLE, f"This run holds no {rule.test} samples of {side.name}.")
        runs = {sample.key for sample in of_side}
        seconds = max(sum(_values(of_side, key, rule.seconds, None)) for key in runs)
        mean_mbps = fmean(_values(of_side, None, (rule.metric,), "mean"))
        peak_mbps = max(_values(of_side, None, (rule.metric,), "max"))
        share = mean_mbps / link.rate_mbps
        sorts = f"{text.plural(len(runs), 'sort')} of {text.size(max(key.size_bytes or 0 for key in runs))}"
        sent = f"{text.quantity(mean_mbps, 'Mbps')} on average ({100 * share:.1f} % of its cable)"
        words.append(
            f"{side.name}: {sorts} in at most {seconds:.0f} s with generation and validation; a worker sends {sent} "
            f"and {text.quantity(peak_mbps, 'Mbps')} at most"
        )
        if seconds > rule.within_s or share > rule.at_most or peak_mbps > link.rate_mbps * _COUNTING:
            verdict = Verdict.CONTRADICTED
    return Finding(verdict, f"{'; '.join(words)}.")


#: The counters are read between packets, and a burst may leave at once.
_COUNTING = 1.1


def _values(samples: list[Sample], key: object, metrics: tuple[str, ...], statistic: str | None) -> list[float]:
    return [
        sample.value
        for sample in samples
        if sample.value is not None
        and sample.metric in metrics
        and key in (None, sample.key)
        and statistic in (None, sample.statistic)
    ]
