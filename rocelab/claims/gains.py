"""Rules about systems: by how much one link makes them better than another."""

from __future__ import annotations

from statistics import fmean

from rocelab.claims.finding import BELOW_ONE, Finding, Number, Range, Verdict, combined, hold, together
from rocelab.claims.numbers import change
from rocelab.claims.rules import Gain, Gains, LinkSide
from rocelab.claims.sides import Place, Sides
from rocelab.stats import text


def judge_gains(rule: Gains, sides: Sides) -> Finding:
    """Every gain that the claim names, on average over the sizes that both sides have."""
    words: list[str] = []
    verdicts: list[Verdict] = []
    for gain in rule.gains:
        percent = percent_of(gain, rule.level, sides)
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


def percent_of(gain: Gain, level: str, sides: Sides) -> Number | str:
    """By how many percent the subject is better, with its interval; or what the run lacks."""
    series = []
    for side in (gain.subject, gain.reference):
        found = sides.first(side, Place(side.link, level, gain.test, gain.metric))
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
