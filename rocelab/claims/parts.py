"""Claims that give numbers: each part of such a claim is computed from series, and has to lie in a range."""

from __future__ import annotations

import itertools
import math

from rocelab.claims.finding import Finding, Verdict
from rocelab.claims.model import LinkSide, Part, Parts
from rocelab.claims.shape import linearity
from rocelab.stats import Series, SeriesKey, SeriesTable, Spread


def judge_parts(rule: Parts, table: SeriesTable) -> Finding:
    """Reproduced if all parts are in their ranges; what the run lacks is said."""
    words, wrong, missing = [], 0, []
    for part in rule.parts:
        number = _number(part, table)
        if isinstance(number, str):
            missing.append(number)
            continue
        fits = part.at_least <= number <= part.at_most
        wrong += not fits
        words.append(f"{part.name}: {_shown(part, number)} ({'as' if fits else 'not as'} {_range(part)})")
    summary = "; ".join(words) + "." if words else ""
    if missing:
        return Finding(Verdict.NOT_CHECKABLE, f"{' '.join(dict.fromkeys(missing))} {summary}".strip())
    return Finding(Verdict.CONTRADICTED if wrong else Verdict.REPRODUCED, summary)


def _series(part: Part, side: LinkSide, table: SeriesTable) -> Series | None:
    place = (side.link, part.level, part.test, side.interconnect, side.variant, part.metric)
    # Other tests over many nodes than the mesh are series of their own for every number of nodes.
    return table.get(SeriesKey(*place, part.nodes, part.ranks))


def _number(part: Part, table: SeriesTable) -> float | str:
    """The number of a part, or what is missing for it."""
    subject = _series(part, part.subject, table)
    if subject is None:
        return f"This run holds no {part.test} samples of {part.subject.name}."
    values = _values(part, subject)
    if part.reference is not None:
        reference = _series(part, part.reference, table)
        if reference is None:
            return f"This run holds no {part.test} samples of {part.reference.name}."
        others = _values(part, reference)
        values = {at: _compared(part, values[at], others[at]) for at in values if at in others}
    if not values:
        return f"{part.name}: nothing was measured there."
    return max(values.values()) if part.of == "most" else min(values.values())


def _values(part: Part, series: Series) -> dict[int, float]:
    if part.how == "linearity":
        found = linearity(series)
    else:
        found = {at: _point(part, spread) * part.factor for at, spread in series.spreads()}
    if part.how == "each":
        found = {at: value / at for at, value in found.items()}
    if part.how == "growth":
        found = {at: found[at] / found[before] for before, at in itertools.pairwise(found) if found[before] > 0}
    chosen = {at: value for at, value in found.items() if part.from_ <= at <= part.to}
    if part.of == "largest" and chosen:
        return {max(chosen): chosen[max(chosen)]}
    return chosen


def _point(part: Part, of: Spread) -> float:
    if not part.best_of_repetitions:
        return of.median
    return of.low if part.better == "lower" else of.high


def _compared(part: Part, subject: float, reference: float) -> float:
    if part.how == "difference":
        return subject - reference
    if part.how == "reduction":
        return 100 * (1 - subject / reference) if reference > 0 else -math.inf
    return _times(part, subject, reference)


def _times(part: Part, subject: float, reference: float) -> float:
    """How many times as good the subject is."""
    worse, better = (subject, reference) if part.better == "lower" else (reference, subject)
    return better / worse if worse > 0 else math.inf


def _shown(part: Part, number: float) -> str:
    if part.how == "ratio":
        return f"{number:.2f} times" if number >= 2.5 else f"{number:.2f} times ({100 * (number - 1):+.0f} %)"
    if part.how == "linearity":
        return f"{100 * number:.0f} %"
    if part.how == "reduction":
        return f"{number:.1f} %"
    if part.how == "growth":
        return f"{number:.2f} times"
    return f"{number:.4g}{' ' if part.unit else ''}{part.unit}"


def _range(part: Part) -> str:
    unit = {"ratio": "times", "growth": "times", "linearity": "", "reduction": "%"}.get(part.how, part.unit)
    low, high = part.at_least, part.at_most
    if low == high:
        return f"claimed: {low:g} {unit}".strip()
    if math.isinf(high):
        return f"claimed: {low:g} {unit} or more".replace("  ", " ")
    if math.isinf(low):
        return f"claimed: {high:g} {unit} or less".replace("  ", " ")
    return f"claimed: {low:g} to {high:g} {unit}".strip()
