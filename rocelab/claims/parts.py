"""Claims that give numbers: each part of such a claim is computed from series, and has to lie in a range."""

from __future__ import annotations

import math

from rocelab.claims.finding import Finding, Number, Range, Verdict, combined, hold, together
from rocelab.claims.numbers import growths, kinks, linearities, value
from rocelab.claims.rules import LinkSide, Part, Parts
from rocelab.claims.sides import Place, Sides
from rocelab.stats import Centre, Series


def judge_parts(rule: Parts, sides: Sides) -> Finding:
    """Reproduced if all parts are in their ranges; what the run lacks is said."""
    words, verdicts, missing = [], [], []
    for part in rule.parts:
        number = number_of(part, sides)
        if isinstance(number, str):
            missing.append(number)
            continue
        verdict = hold(number, Range(part.at_least, part.at_most))
        verdicts.append(verdict)
        words.append(f"{part.name}: {_shown(part, number)} ({_FITS[verdict]} {_range(part)})")
    summary = "; ".join(words) + "." if words else ""
    if missing:
        return Finding(Verdict.NOT_CHECKABLE, f"{' '.join(dict.fromkeys(missing))} {summary}".strip())
    return Finding(together(verdicts), summary)


_FITS = {Verdict.REPRODUCED: "as", Verdict.CONTRADICTED: "not as", Verdict.NOT_CHECKABLE: "undecided whether as"}


def _series(part: Part, side: LinkSide, sides: Sides) -> Series | None:
    # Other tests over many nodes than the mesh are series of their own for every number of nodes.
    return sides.first(side, _place(part, side))


def _place(part: Part, side: LinkSide) -> Place:
    return Place(side.link, part.level, part.test, part.metric, (part.nodes, part.ranks))


def number_of(part: Part, sides: Sides) -> Number | str:
    """The number of a part, or what is missing for it."""
    subject = _series(part, part.subject, sides)
    if subject is None:
        return f"This run holds no {part.test} samples of {part.subject.name}."
    found = _values(part, subject)
    if part.reference is not None:
        references = sides.under_each_control(part.reference, _place(part, part.reference))
        if not references:
            return f"This run holds no {part.test} samples of {part.reference.name}."
        others = set[int]().union(*(_values(part, each) for each in references))
        pairs = {at: _compared(part, subject, references, at) for at in found if at in others}
        found = {at: number for at, number in pairs.items() if number is not None}
    if not found:
        return f"{part.name}: nothing was measured there."
    return combined(found.values(), max if part.of == "most" else min)


def _values(part: Part, series: Series) -> dict[int, Number]:
    if part.how == "linearity":
        found = linearities(series)
    elif part.how == "growth":
        found = growths(series)
    elif part.how == "kink":
        found = kinks(series)
    else:
        found = {at: value(series, at, _centre(part)).scaled(part.factor) for at in series.sizes}
    if part.how == "each":
        found = {at: number.scaled(1 / at) for at, number in found.items()}
    chosen = {at: number for at, number in found.items() if part.from_ <= at <= part.to}
    if part.of == "largest" and chosen:
        return {max(chosen): chosen[max(chosen)]}
    return chosen


def _centre(part: Part) -> Centre | None:
    if not part.best_of_repetitions:
        return None
    return "min" if part.better == "lower" else "max"


def _compared(part: Part, subject: Series, references: list[Series], at: int) -> Number | None:
    if part.how == "difference":
        choose = min if part.better == "lower" else max
        theirs = [value(each, at, _centre(part)) for each in references if at in each.values]
        best = choose(theirs, key=lambda number: number.estimate)
        return _less(value(subject, at, _centre(part)), best).scaled(part.factor)
    found = subject.ratio_to_best(references, at, better=part.better, centre=_centre(part))
    if found is None:
        return None
    if part.how == "reduction":
        return Number.of(found.ratio).mapped(lambda times: 100 * (1 - times))
    if part.how == "increase":
        return Number.of(found.ratio).mapped(lambda times: 100 * (times - 1))
    # How many times as good the subject is.
    return Number.of(found.ratio.inverse() if part.better == "lower" else found.ratio)


def _less(mine: Number, theirs: Number) -> Number:
    estimate = mine.estimate - theirs.estimate
    if mine.low is None or mine.high is None or theirs.low is None or theirs.high is None:
        return Number(estimate, None, None)
    return Number(estimate, mine.low - theirs.high, mine.high - theirs.low)


def _shown(part: Part, number: Number) -> str:
    if part.how == "ratio":
        words = f"{number.words(lambda each: f'{each:.2f}')} times"
        return (
            words if number.estimate >= 2.5 else f"{words}, {number.words(lambda each: f'{100 * (each - 1):+.0f}')} %"
        )
    if part.how == "linearity":
        return f"{number.words(lambda each: f'{100 * each:.0f}')} %"
    if part.how == "reduction":
        return f"{number.words(lambda each: f'{each:.1f}')} %"
    if part.how == "increase":
        return f"{number.words(lambda each: f'{each:+.1f}')} %"
    if part.how in ("growth", "kink"):
        return f"{number.words(lambda each: f'{each:.2f}')} times"
    return f"{number.words(lambda each: f'{each:.4g}')}{' ' if part.unit else ''}{part.unit}"


_UNITS = {"ratio": "times", "growth": "times", "kink": "times", "linearity": "", "reduction": "%", "increase": "%"}


def _range(part: Part) -> str:
    unit = _UNITS.get(part.how, part.unit)
    low, high = part.at_least, part.at_most
    if low == high:
        return f"claimed: {low:g} {unit}".strip()
    if math.isinf(high):
        return f"claimed: {low:g} {unit} or more".replace("  ", " ")
    if math.isinf(low):
        return f"claimed: {high:g} {unit} or less".replace("  ", " ")
    return f"claimed: {low:g} to {high:g} {unit}".strip()
