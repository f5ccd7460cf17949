"""Holds a run against a claim. Whatever a rule decides, it says what was measured; what a run lacks, it says too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocelab.claims import gains, shape
from rocelab.claims.finding import COVERAGE, Evidence, Finding, Verdict, decide
from rocelab.claims.model import (
    AtLevel,
    Claim,
    Comparison,
    Completes,
    Expectation,
    Fails,
    Gains,
    Ordered,
    Parts,
    ShapeRule,
    Side,
    Similar,
    SizeRange,
    Sorts,
)
from rocelab.claims.parts import judge_parts
from rocelab.results import RunInfo, Sample
from rocelab.stats import Ratio, Series, SeriesKey, SeriesTable, text
from rocelab.stats import Side as RatioSide


@dataclass(frozen=True, slots=True)
class Judgement:
    """A claim with its verdict and the reasons for it."""

    claim: Claim
    verdict: Verdict
    summary: str
    """What was measured, in a sentence or two."""
    notes: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    subject_name: str = ""
    reference_name: str = ""


def judge(claim: Claim, info: RunInfo, samples: Sequence[Sample]) -> Judgement:
    """Judges one claim on the current samples of a run."""
    claim = _simulated(claim) if info.fabric == "virtual" else _at_its_level(claim, samples)
    rule = claim.rule
    if isinstance(rule, Fails | Completes):
        finding = (
            _judge_fails(rule, info, samples) if isinstance(rule, Fails) else _judge_completes(rule, info, samples)
        )
        return Judgement(claim, finding.verdict, finding.summary)
    table = SeriesTable(samples)
    if isinstance(rule, Parts):
        finding = judge_parts(rule, table)
        return Judgement(claim, finding.verdict, finding.summary)
    if isinstance(rule, Gains | Sorts):
        finding = (
            gains.judge_gains(rule, table) if isinstance(rule, Gains) else gains.judge_sorts(rule, info, list(samples))
        )
        return Judgement(claim, finding.verdict, finding.summary)
    if isinstance(rule, ShapeRule):
        finding = shape.judge_shape(rule, info, table)
        return Judgement(claim, finding.verdict, finding.summary)
    link_id = _link(rule, info, table)
    if link_id is None:
        wanted = text.listing([f"'{link}'" for link in rule.links]) or "any"
        have = text.listing([f"'{link.id}'" for link in info.links]) or "none"
        summary = f"The claim is about the link profile {wanted}, and this run has {have}."
        return Judgement(claim, Verdict.NOT_CHECKABLE, summary)
    finding = _judge_comparison(rule, link_id, table, rule.reference)
    notes = [f"Judged on the link profile '{link_id}'."] if finding.evidence else []
    if rule.also is not None and finding.evidence:
        other = _judge_comparison(rule, link_id, table, rule.also)
        notes.append(f"Held against {rule.also.name} instead, it is {other.verdict}: {text.lower_first(other.summary)}")
    return Judgement(
        claim, finding.verdict, finding.summary, tuple(notes), finding.evidence, rule.subject.name, rule.reference.name
    )


def _at_its_level(claim: Claim, samples: Sequence[Sample]) -> Claim:
    """The claim with its rule for MPI, if that is what was measured."""
    if claim.mpi is None:
        return claim
    rule = claim.mpi.rule
    if isinstance(rule, Parts):
        return claim
    if isinstance(rule, Gains):
        tests = tuple(gain.test for gain in rule.gains)
    else:
        tests = rule.tests if isinstance(rule, Fails | Completes) else (rule.test,)
    if not any(sample.level == rule.level and sample.test in tests for sample in samples):
        return claim
    return _judged_by(claim, claim.mpi)


def _simulated(claim: Claim) -> Claim:
    """The claim with its rule for simulations, if it has one."""
    return claim if claim.virtual is None else _judged_by(claim, claim.virtual)


def _judged_by(claim: Claim, other: AtLevel) -> Claim:
    return claim.model_copy(update={"stand_in": other.stand_in, "rule_text": other.rule_text, "rule": other.rule})


def _link(rule: Comparison, info: RunInfo, table: SeriesTable) -> str | None:
    present = [link.id for link in info.links]
    if rule.links:
        return next((link for link in rule.links if link in present), None)
    measured = [key.link for key in table if (key.level, key.test) == (rule.level, rule.test)]
    return next((link for link in present if link in measured), present[0] if present else None)


def _series(rule: Comparison, link_id: str, table: SeriesTable, side: Side) -> Series | None:
    wanted = SeriesKey(link_id, rule.level, rule.test, side.interconnect, side.variant, rule.metric)
    # A claim that does not say how many took part is judged on the scale that was measured first.
    key = next((key for key in table if key._replace(nodes=wanted.nodes, ranks=wanted.ranks) == wanted), wanted)
    return table.get(key)


def _judge_comparison(rule: Similar | Ordered, link_id: str, table: SeriesTable, reference_side: Side) -> Finding:
    subject, reference = _series(rule, link_id, table, rule.subject), _series(rule, link_id, table, reference_side)
    if subject is None or reference is None:
        return _one_side_only(rule, link_id, subject, reference, reference_side)
    if isinstance(rule, Similar):
        return _judge_similar(rule, subject, reference, reference_side)
    return _judge_ordered(rule, subject, reference, reference_side)


def _one_side_only(
    rule: Similar | Ordered, link_id: str, subject: Series | None, reference: Series | None, reference_side: Side
) -> Finding:
    missing = [side.name for side, series in ((rule.subject, subject), (reference_side, reference)) if series is None]
    words = f"This run holds no {rule.test} samples of {text.listing(missing)} on the link '{link_id}'."
    present, name = (subject, rule.subject.name) if subject is not None else (reference, reference_side.name)
    ranges = [rule.sizes] if isinstance(rule, Similar) else list(rule.expect)
    values = [summary.median for size, summary in present.spreads() if _within(size, ranges)] if present else []
    if present is not None and values:
        low, high = text.quantity(min(values), present.unit), text.quantity(max(values), present.unit)
        words += f" {text.upper_first(name)} alone: {low} to {high} over these sizes."
    return Finding(Verdict.NOT_CHECKABLE, words)


def _within(size_bytes: int, ranges: Sequence[SizeRange]) -> bool:
    return any(each.from_bytes <= size_bytes <= each.to_bytes for each in ranges)


def _powers_of_two(sizes: SizeRange) -> list[int]:
    return [1 << bit for bit in range(sizes.to_bytes.bit_length()) if sizes.from_bytes <= 1 << bit <= sizes.to_bytes]


def _not_covered(sizes: SizeRange, measured: Sequence[int]) -> str | None:
    """Says what a run lacks to be judged over a range; None when it has enough."""
    wanted = _powers_of_two(sizes)
    missing = [size for size in wanted if size not in measured]
    if measured and len(missing) <= (1 - COVERAGE) * len(wanted):
        return None
    return (
        f"Too few of the sizes from {text.size(sizes.from_bytes)} to {text.size(sizes.to_bytes)} were measured on both "
        f"sides: {len(wanted) - len(missing)} of {len(wanted)}."
    )


def _compared(subject: Series, reference: Series, sizes: SizeRange) -> list[tuple[int, Ratio]]:
    pairs = ((size, subject.ratio_to(reference, size)) for size in subject.sizes if _within(size, [sizes]))
    return [(size, comparison) for size, comparison in pairs if comparison is not None]


def _judge_similar(rule: Similar, subject: Series, reference: Series, reference_side: Side) -> Finding:
    compared = _compared(subject, reference, rule.sizes)
    lacking = _not_covered(rule.sizes, [size for size, _ in compared])
    if lacking is not None:
        return Finding(Verdict.NOT_CHECKABLE, lacking)
    counts = {size: _same_or_different(comparison, rule.tolerance) for size, comparison in compared}
    same = [size for size, counted in counts.items() if counted == "same"]
    different = [size for size, counted in counts.items() if counted == "different"]
    verdict = decide(len(same), len(different), len(compared))
    least = min(compared, key=lambda pair: pair[1].estimate)
    most = max(compared, key=lambda pair: pair[1].estimate)
    where = f" ({text.size_list(same)})" if same else ""
    words = (
        f"Within {100 * rule.tolerance:.0f} % of {reference_side.name} at {len(same)} of "
        f"{text.plural(len(compared), 'size')}{where}; {rule.subject.name} reaches "
        f"{text.times(least[1].estimate)} (at {text.size(least[0])}) to {text.times(most[1].estimate)} "
        f"(at {text.size(most[0])}) its bandwidth."
    )
    if verdict is Verdict.NOT_CHECKABLE:
        words += " The repetitions spread too far to tell: repeat it more often, on a quieter machine."
    return Finding(verdict, words, _evidence(subject, reference, compared, counts))


def _same_or_different(comparison: Ratio, tolerance: float) -> str:
    lowest, highest = 1 / (1 + tolerance), 1 + tolerance
    if lowest <= comparison.estimate <= highest:
        return "same"
    if comparison.low is None or comparison.high is None:
        return "unclear"
    return "different" if comparison.low > highest or comparison.high < lowest else "unclear"


def _judge_ordered(rule: Ordered, subject: Series, reference: Series, reference_side: Side) -> Finding:
    parts = [_judge_expectation(rule, expectation, subject, reference, reference_side) for expectation in rule.expect]
    verdicts = {part.verdict for part in parts}
    if Verdict.CONTRADICTED in verdicts:
        verdict = Verdict.CONTRADICTED
    else:
        verdict = Verdict.REPRODUCED if verdicts == {Verdict.REPRODUCED} else Verdict.NOT_CHECKABLE
    evidence = tuple(row for part in parts for row in part.evidence)
    return Finding(verdict, " ".join(part.summary for part in parts), evidence)


def _judge_expectation(
    rule: Ordered, expectation: Expectation, subject: Series, reference: Series, reference_side: Side
) -> Finding:
    compared = _compared(subject, reference, expectation)
    lacking = _not_covered(expectation, [size for size, _ in compared])
    if lacking is not None:
        return Finding(Verdict.NOT_CHECKABLE, lacking)
    subject_side = RatioSide.BELOW if rule.better == "lower" else RatioSide.ABOVE
    better = {size: _better(comparison, subject_side) for size, comparison in compared}
    for size, side in better.items():
        if side == expectation.better and _difference(subject, reference, size) < expectation.margin:
            better[size] = "unclear"
    claimed = list(better.values()).count(expectation.better)
    decided = sum(each != "unclear" for each in better.values())
    verdict = decide(claimed, decided - claimed, len(compared))
    names = {"subject": rule.subject.name, "reference": reference_side.name, "unclear": "no clear difference"}
    counts = {size: names[each] for size, each in better.items()}
    decided_words = "undecided" if verdict is Verdict.NOT_CHECKABLE else verdict.value
    words = f"{text.size(expectation.from_bytes)} to {text.size(expectation.to_bytes)}: {decided_words}, "
    words += _who_is_better(better, names, len(compared)) + f" ({_factors(compared, subject_side, rule.subject.name)})."
    return Finding(verdict, words, _evidence(subject, reference, compared, counts))


def _difference(subject: Series, reference: Series, size_bytes: int) -> float:
    return abs(subject.spread(size_bytes).median - reference.spread(size_bytes).median)


def _better(comparison: Ratio, subject_side: RatioSide) -> str:
    if comparison.side is RatioSide.UNCLEAR:
        return "unclear"
    return "subject" if comparison.side is subject_side else "reference"


def _who_is_better(better: dict[int, str], names: dict[str, str], count: int) -> str:
    parts = []
    for side in ("subject", "reference"):
        number = list(better.values()).count(side)
        if number:
            parts.append(f"{names[side]} is better at {number} of {text.plural(count, 'size')}")
    unclear = list(better.values()).count("unclear")
    if unclear:
        parts.append(f"{unclear} without a clear difference")
    return text.listing(parts)


def _factors(compared: list[tuple[int, Ratio]], subject_side: RatioSide, name: str) -> str:
    estimates = [each.estimate if subject_side is RatioSide.ABOVE else 1 / each.estimate for _, each in compared]
    low, high = text.times(min(estimates)), text.times(max(estimates))
    return f"{name} is {low if low == high else f'{low} to {high}'} as fast"


def _evidence(
    subject: Series, reference: Series, compared: list[tuple[int, Ratio]], counts: dict[int, str]
) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(size, subject.spread(size), reference.spread(size), subject.unit, comparison, counts[size])
        for size, comparison in compared
    )


def _judge_fails(rule: Fails, info: RunInfo, samples: Sequence[Sample]) -> Finding:
    steps: dict[str, dict[tuple[object, ...], bool]] = {test: {} for test in rule.tests}
    errors: list[str] = []
    for sample in samples:
        if sample.interconnect != rule.interconnect or sample.level != rule.level or sample.test not in steps:
            continue
        of_test = steps[sample.test]
        of_test[sample.key] = of_test.get(sample.key, True) and sample.ok
        if sample.error is not None:
            errors.append(sample.error)
    counts = [(test, len(done), sum(done.values())) for test, done in steps.items()]
    words = text.listing(
        [f"{completed:,} of {text.plural(count, test + ' run')} completed" for test, count, completed in counts]
    )
    words = f"{rule.name}: {words}."
    if errors and any(completed for _, _, completed in counts):
        often = any(count - completed >= rule.at_least * count > 0 for _, count, completed in counts)
        if often:
            return Finding(Verdict.REPRODUCED, f"{words} The first failure: {errors[0]}")
        return Finding(Verdict.NOT_CHECKABLE, f"{words} That is neither frequently nor never. The first: {errors[0]}")
    if errors:
        return Finding(Verdict.NOT_CHECKABLE, f"{words} Nothing worked at all, which says nothing: {errors[0]}")
    missing = [test for test, count, _ in counts if count == 0]
    if missing:
        return Finding(Verdict.NOT_CHECKABLE, f"{words} The run holds no samples of {text.listing(missing)}.")
    if info.status in ("running", "interrupted"):
        return Finding(Verdict.NOT_CHECKABLE, f"{words} The run is {info.status}: not all of its steps are done.")
    return Finding(Verdict.CONTRADICTED, f"{words} None failed or hung.")


def _judge_completes(rule: Completes, info: RunInfo, samples: Sequence[Sample]) -> Finding:
    ends: dict[tuple[str, str], dict[tuple[object, ...], bool]] = {
        (interconnect, test): {} for interconnect in rule.interconnects for test in rule.tests
    }
    scales: dict[str, set[int]] = {test: set() for test in rule.tests}
    errors: list[str] = []
    for sample in samples:
        place = (sample.interconnect, sample.test)
        if sample.level != rule.level or place not in ends:
            continue
        ends[place][sample.key] = ends[place].get(sample.key, True) and sample.ok
        scales[sample.test].add(sample.ranks)
        if sample.error is not None:
            errors.append(sample.error)
    counts = [(place, len(done), sum(done.values())) for place, done in ends.items()]
    count, completed = sum(each for _, each, _ in counts), sum(each for _, _, each in counts)
    words = f"{completed:,} of {text.plural(count, 'measurement')} completed with the right data"
    if rule.scales > 1:
        numbers = sorted({ranks for found in scales.values() for ranks in found})
        words += f", with {text.listing([str(number) for number in numbers]) or 'no'} processes"
    if errors:
        return Finding(Verdict.CONTRADICTED, f"{words}. The first failure: {errors[0]}")
    missing = [f"{test} over {interconnect}" for (interconnect, test), number, _ in counts if number == 0]
    if missing:
        return Finding(Verdict.NOT_CHECKABLE, f"{words}. The run holds no samples of {text.listing(missing)}.")
    if any(len(found) < rule.scales for found in scales.values()):
        return Finding(Verdict.NOT_CHECKABLE, f"{words}; {rule.scales} different numbers of processes are needed.")
    if info.status in ("running", "interrupted"):
        return Finding(Verdict.NOT_CHECKABLE, f"{words}. The run is {info.status}: not all of its steps are done.")
    return Finding(Verdict.REPRODUCED, f"{words}. None failed or hung.")
