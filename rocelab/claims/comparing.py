"""Rules that compare a series with a reference, or with the best of several, size by size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rocelab import peers
from rocelab.claims.finding import (
    ABOVE_ONE,
    BELOW_ONE,
    COVERAGE,
    Evidence,
    Finding,
    Number,
    Range,
    Verdict,
    decide,
    hold,
    together,
)
from rocelab.claims.rules import Expectation, Ordered, Side, Similar, SizeRange
from rocelab.claims.sides import Place, Sides
from rocelab.stats import Ratio, Series, text


@dataclass(frozen=True, slots=True)
class _Compared:
    """One size: how many times the subject is the best reference there."""

    size_bytes: int
    ratio: Ratio
    subject: Series
    reference: Series
    reference_name: str

    def evidence(self, counts_as: str) -> Evidence:
        subject, reference = self.subject.spread(self.size_bytes), self.reference.spread(self.size_bytes)
        return Evidence(
            self.size_bytes, subject, reference, self.subject.unit, self.ratio, counts_as, self.reference_name
        )


def judge_comparison(rule: Similar | Ordered, link_id: str, sides: Sides, reference_side: Side) -> Finding:
    """Holds the subject of a rule against a reference, which of several series is the best at each size."""
    place = Place(link_id, rule.level, rule.test, rule.metric)
    subject = sides.first(rule.subject, place)
    # Both sides on one scale: a claim that names none is judged on that which was measured first.
    scale = None if subject is None else (subject.key.nodes, subject.key.ranks)
    references = sides.every(reference_side, place._replace(scale=scale))
    if subject is None or not references:
        return _one_side_only(rule, link_id, subject, references, reference_side)
    if isinstance(rule, Similar):
        return _judge_similar(rule, subject, references, reference_side)
    return _judge_ordered(rule, subject, references, reference_side)


def _one_side_only(
    rule: Similar | Ordered, link_id: str, subject: Series | None, references: list[Series], reference_side: Side
) -> Finding:
    missing = [side.name for side, has in ((rule.subject, subject), (reference_side, references)) if not has]
    words = f"This run holds no {rule.test} samples of {text.listing(missing)} on the link '{link_id}'."
    ranges = [rule.sizes] if isinstance(rule, Similar) else list(rule.expect)
    for series in references if subject is None else [subject]:
        values = [summary.typical for size, summary in series.spreads() if _within(size, ranges)]
        name = rule.subject.name if series is subject else _name(reference_side, series)
        if values:
            low, high = text.quantity(min(values), series.unit), text.quantity(max(values), series.unit)
            words += f" {text.upper_first(name)} alone: {low} to {high} over these sizes."
    return Finding(Verdict.NOT_CHECKABLE, words)


def _name(side: Side, series: Series) -> str:
    return peers.title(series.key.variant) if series.key.interconnect == peers.TCP else side.name


def _within(size_bytes: int, ranges: Sequence[SizeRange]) -> bool:
    return any(each.from_bytes <= size_bytes <= each.to_bytes for each in ranges)


def _powers_of_two(sizes: SizeRange) -> list[int]:
    return [1 << bit for bit in range(sizes.to_bytes.bit_length()) if sizes.from_bytes <= 1 << bit <= sizes.to_bytes]


def _not_covered(sizes: SizeRange, compared: Sequence[_Compared]) -> str | None:
    """Says what a run lacks to be judged over a range; None when it has enough."""
    wanted, measured = _powers_of_two(sizes), [each.size_bytes for each in compared]
    missing = [size for size in wanted if size not in measured]
    if measured and len(missing) <= (1 - COVERAGE) * len(wanted):
        return None
    return (
        f"Too few of the sizes from {text.size(sizes.from_bytes)} to {text.size(sizes.to_bytes)} were measured on both "
        f"sides: {len(wanted) - len(missing)} of {len(wanted)}."
    )


def _compared(
    rule: Similar | Ordered, subject: Series, references: list[Series], side: Side, sizes: SizeRange
) -> list[_Compared]:
    found: list[_Compared] = []
    for size in subject.sizes:
        best = subject.ratio_to_best(references, size, better=rule.better) if _within(size, [sizes]) else None
        if best is not None:
            reference = references[best.best]
            found.append(_Compared(size, best.ratio, subject, reference, _name(side, reference)))
    return found


def _held_against(compared: Sequence[_Compared]) -> str:
    """Which of several references was the best where; empty where there is but one, under the name of its side."""
    sizes: dict[str, list[int]] = {}
    for each in compared:
        sizes.setdefault(each.reference_name, []).append(each.size_bytes)
    if len(sizes) == 1:
        return f" Held against {next(iter(sizes))}."
    parts = [f"{name} ({text.size_list(of)})" for name, of in sizes.items()]
    return f" Held against the best at each size: {'; '.join(parts)}."


def _judge_similar(rule: Similar, subject: Series, references: list[Series], reference_side: Side) -> Finding:
    compared = _compared(rule, subject, references, reference_side, rule.sizes)
    lacking = _not_covered(rule.sizes, compared)
    if lacking is not None:
        return Finding(Verdict.NOT_CHECKABLE, lacking)
    claimed = Range(1 / (1 + rule.tolerance), 1 + rule.tolerance)
    held = [hold(Number.of(each.ratio), claimed) for each in compared]
    same = [each.size_bytes for each, of in zip(compared, held, strict=True) if of is Verdict.REPRODUCED]
    verdict = decide(held)
    least, most = (choose(compared, key=lambda each: each.ratio.estimate) for choose in (min, max))
    where = f" ({text.size_list(same)})" if same else ""
    words = (
        f"Within {100 * rule.tolerance:.0f} % of {reference_side.name} at {len(same)} of "
        f"{text.plural(len(compared), 'size')}{where}; {rule.subject.name} reaches {_times_at(least)} to "
        f"{_times_at(most)} its bandwidth.{_held_against(compared)}"
    )
    if verdict is Verdict.NOT_CHECKABLE:
        words += " The repetitions spread too far to tell: repeat it more often, on a quieter machine."
    names = {Verdict.REPRODUCED: "same", Verdict.CONTRADICTED: "different", Verdict.NOT_CHECKABLE: "unclear"}
    evidence = tuple(each.evidence(names[of]) for each, of in zip(compared, held, strict=True))
    return Finding(verdict, words, evidence)


def _times_at(each: _Compared) -> str:
    return f"{text.times_range(each.ratio)} at {text.size(each.size_bytes)}"


def _judge_ordered(rule: Ordered, subject: Series, references: list[Series], reference_side: Side) -> Finding:
    parts = [_judge_expectation(rule, each, subject, references, reference_side) for each in rule.expect]
    evidence = tuple(row for part in parts for row in part.evidence)
    return Finding(together(part.verdict for part in parts), " ".join(part.summary for part in parts), evidence)


def _judge_expectation(
    rule: Ordered, expectation: Expectation, subject: Series, references: list[Series], reference_side: Side
) -> Finding:
    compared = _compared(rule, subject, references, reference_side, expectation)
    lacking = _not_covered(expectation, compared)
    if lacking is not None:
        return Finding(Verdict.NOT_CHECKABLE, lacking)
    held = [_as_expected(rule, expectation, each) for each in compared]
    verdict = decide(held)
    other = "reference" if expectation.better == "subject" else "subject"
    sides = {Verdict.REPRODUCED: expectation.better, Verdict.CONTRADICTED: other, Verdict.NOT_CHECKABLE: "unclear"}
    names = {"subject": rule.subject.name, "reference": reference_side.name, "unclear": "no clear difference"}
    better = [sides[each] for each in held]
    words = f"{text.size(expectation.from_bytes)} to {text.size(expectation.to_bytes)}: {verdict.of_part}, "
    words += f"{_better_words(better, names)} ({_factors(rule, compared)}).{_held_against(compared)}"
    evidence = tuple(each.evidence(names[side]) for each, side in zip(compared, better, strict=True))
    return Finding(verdict, words, evidence)


def _as_expected(rule: Ordered, expectation: Expectation, each: _Compared) -> Verdict:
    """Whether the claimed side is better at a size, by the margin; contradicted only if the other one is better."""
    is_below = (rule.better == "lower") == (expectation.better == "subject")
    claimed, opposed = (BELOW_ONE, ABOVE_ONE) if is_below else (ABOVE_ONE, BELOW_ONE)
    if expectation.margin > 0:
        # A difference of that much, as a part of the reference.
        part = expectation.margin / each.reference.spread(each.size_bytes).typical
        claimed = Range(at_most=1 - part) if is_below else Range(at_least=1 + part)
    return hold(Number.of(each.ratio), claimed, opposed)


def _better_words(better: Sequence[str], names: Mapping[str, str]) -> str:
    parts = []
    for side in ("subject", "reference"):
        number = better.count(side)
        if number:
            parts.append(f"{names[side]} is better at {number} of {text.plural(len(better), 'size')}")
    if "unclear" in better:
        parts.append(f"{better.count('unclear')} without a clear difference")
    return text.listing(parts)


def _factors(rule: Ordered, compared: Sequence[_Compared]) -> str:
    fast = [each.ratio.inverse() if rule.better == "lower" else each.ratio for each in compared]
    slowest, fastest = (choose(fast, key=lambda ratio: ratio.estimate) for choose in (min, max))
    low, high = text.times_range(slowest), text.times_range(fastest)
    return f"{rule.subject.name} is {low if low == high else f'{low} to {high}'} as fast"
