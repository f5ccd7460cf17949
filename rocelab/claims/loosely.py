"""Rules for what a source says loosely: that something is so in most cases, or nothing, because it asks."""

from __future__ import annotations

from collections.abc import Sequence

from rocelab.claims.finding import Finding, Number, Range, Verdict, hold
from rocelab.claims.rules import Answers, Mostly, Question
from rocelab.claims.sides import Place, Sides
from rocelab.results import RunInfo, Sample
from rocelab.stats import Better, Ratio, Series, text


def judge_mostly(rule: Mostly, sides: Sides) -> Finding:
    """Reproduced if more than half of all cases are as claimed for sure; contradicted if as many are not."""
    as_good = Range(at_most=1 + rule.tolerance) if rule.better == "lower" else Range(at_least=1 / (1 + rule.tolerance))
    held: list[Verdict] = []
    scales = []
    for scale in sides.scales(rule.level, rule.test):
        place = Place(rule.link, rule.level, rule.test, rule.metric, scale)
        ratios = _against_best(rule, sides, place)
        held += [hold(Number.of(ratio), as_good) for ratio in ratios.values()]
        scales += [scale] if ratios else []
    if not held:
        lacking = f"{rule.subject.name} and {rule.reference.name} on the link '{rule.link}'"
        return Finding(Verdict.NOT_CHECKABLE, f"This run holds no {rule.test} samples of {lacking}.")
    good, bad = held.count(Verdict.REPRODUCED), held.count(Verdict.CONTRADICTED)
    numbers = text.listing([str(ranks) for _, ranks in scales])
    words = (
        f"{rule.subject.name} is as good as the best {rule.reference.name} or better in {good} of "
        f"{text.plural(len(held), 'case')}, and worse by more than {100 * rule.tolerance:.0f} % in {bad} "
        f"({numbers} processes)."
    )
    if 2 * good > len(held):
        return Finding(Verdict.REPRODUCED, words)
    return Finding(Verdict.CONTRADICTED if 2 * bad >= len(held) else Verdict.NOT_CHECKABLE, words)


def _against_best(rule: Mostly, sides: Sides, place: Place) -> dict[int, Ratio]:
    subject, references = sides.first(rule.subject, place), sides.every(rule.reference, place)
    if subject is None or not references:
        return {}
    found = {size: subject.ratio_to_best(references, size, better=rule.better) for size in subject.sizes}
    return {size: best.ratio for size, best in found.items() if best is not None}


def judge_answers(rule: Answers, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> Finding:
    """Answered if every test has numbers of both sides; what failed is part of the answer."""
    words, missing = [], []
    for question in rule.questions:
        answer = _answer(rule, question, sides)
        if answer is None:
            missing.append(question.test if question.link is None else f"{question.test} ({question.link})")
        else:
            words.append(f"{question.name}: {answer}")
    tests = {question.test for question in rule.questions}
    ours = [each for each in samples if each.level == rule.level and each.test in tests]
    runs = {each.key: each.ok for each in ours if each.interconnect == rule.subject.interconnect}
    failed = sum(not ok for ok in runs.values())
    words.append(f"of {text.plural(len(runs), 'measurement')} over {rule.subject.name}, {failed} failed")
    summary = f"{text.upper_first('; '.join(words))}."
    if missing:
        lacking = f"This run holds no {text.listing(missing)} samples of both sides."
        return Finding(Verdict.NOT_CHECKABLE, f"{lacking} {summary}")
    if info.status in ("running", "interrupted"):
        return Finding(Verdict.NOT_CHECKABLE, f"{summary} The run is {info.status}: not all of its steps are done.")
    return Finding(Verdict.ANSWERED, summary)


def _answer(rule: Answers, question: Question, sides: Sides) -> str | None:
    """What a test gave over all sizes, of the subject and of the reference under its best congestion control."""
    links = sides.links(rule.level, question.test) if question.link is None else [question.link]
    for link in links:
        place = Place(link, rule.level, question.test, question.metric)
        subject, references = sides.first(rule.subject, place), sides.under_each_control(rule.reference, place)
        if subject is not None and references:
            said = []
            for name, every in ((rule.subject.name, [subject]), (rule.reference.name, references)):
                values = _best_values(every, question.better)
                ends = (text.quantity(end, every[0].unit) for end in (min(values), max(values)))
                said.append(f"{name} {' to '.join(ends)}")
            return ", ".join(said)
    return None


def _best_values(every: Sequence[Series], better: Better) -> list[float]:
    """At each size what stands for the repetitions of the best series."""
    choose = min if better == "lower" else max
    sizes = dict.fromkeys(size for series in every for size in series.sizes)
    return [choose(each.spread(size).typical for each in every if size in each.values) for size in sizes]
