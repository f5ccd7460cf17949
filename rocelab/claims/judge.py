"""Holds a run against a claim. Whatever a rule decides, it says what was measured; what a run lacks, it says too."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rocelab.claims import shape
from rocelab.claims.certainty import Certainty
from rocelab.claims.comparing import judge_comparison
from rocelab.claims.finding import MIN_REPETITIONS, Evidence, Finding, Verdict, together
from rocelab.claims.gains import judge_gains
from rocelab.claims.loosely import judge_answers, judge_mostly
from rocelab.claims.model import AtLevel, Claim
from rocelab.claims.parts import judge_parts
from rocelab.claims.rules import (
    All,
    Answers,
    Comparison,
    Completes,
    Fails,
    Gains,
    Mostly,
    NoComparison,
    Ordered,
    Parts,
    Rule,
    Similar,
    Sorts,
)
from rocelab.claims.scale import scaled
from rocelab.claims.sides import Sides
from rocelab.claims.sorts import judge_sorts
from rocelab.results import RunInfo, Sample
from rocelab.stats import SIMULATED, SeriesTable, text

#: The fabric whose links are what they are.
HOSTS: Final = "hosts"


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
    scaled: tuple[str, ...] = ()
    """What is smaller or larger here than in the source."""
    certainty: Certainty | None = None
    """Of a simulated run: its draws of what is assumed, and the null model."""

    @property
    def verdict_words(self) -> str:
        """The verdict, and whether it follows from what was put in: then it is no evidence."""
        is_given = self.verdict is Verdict.REPRODUCED and bool(self.claim.by_construction)
        return f"{self.verdict} by construction" if is_given else str(self.verdict)


def judge(claim: Claim, info: RunInfo, samples: Sequence[Sample]) -> Judgement:
    """Judges one claim on the current samples of a run."""
    judged = _judge(claim, info, samples)
    return dataclasses.replace(judged, scaled=scaled(judged.claim, info, _about(judged.claim.rule, samples)))


def _about(rule: Rule, samples: Sequence[Sample]) -> list[Sample]:
    tests = _tests(rule)
    return [sample for sample in samples if (sample.level, sample.test) in tests]


def _judge(claim: Claim, info: RunInfo, samples: Sequence[Sample]) -> Judgement:
    claim = _simulated(claim) if info.fabric == SIMULATED else _at_its_level(claim, samples)
    rule = claim.rule
    sides = Sides(SeriesTable(samples))
    if isinstance(rule, Comparison):
        return _judge_comparison(claim, rule, info, sides, samples)
    finding = _finding(rule, info, sides, samples)
    notes = (*_read_otherwise(claim, info, sides, samples), *sides.notes)
    return Judgement(claim, finding.verdict, finding.summary, (*notes, *_repetition_notes(rule, finding, samples)))


def _finding(rule: NoComparison, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> Finding:
    if isinstance(rule, All):
        found = [_finding(each, info, sides, samples) for each in rule.rules]
        return Finding(together(each.verdict for each in found), " ".join(each.summary for each in found))
    if isinstance(rule, Fails | Completes | Answers | Sorts):
        return _judge_runs(rule, info, sides, samples)
    if isinstance(rule, Parts):
        return judge_parts(rule, sides)
    if isinstance(rule, Gains):
        return judge_gains(rule, sides)
    return judge_mostly(rule, sides) if isinstance(rule, Mostly) else shape.judge_shape(rule, info, sides)


def _judge_runs(
    rule: Fails | Completes | Answers | Sorts, info: RunInfo, sides: Sides, samples: Sequence[Sample]
) -> Finding:
    """Judges what is, among other things, about which measurements failed."""
    if isinstance(rule, Fails):
        return _judge_fails(rule, info, samples)
    if isinstance(rule, Completes):
        return _judge_completes(rule, info, samples)
    if isinstance(rule, Answers):
        return judge_answers(rule, info, sides, samples)
    return judge_sorts(rule, info, sides, samples)


def _read_otherwise(claim: Claim, info: RunInfo, sides: Sides, samples: Sequence[Sample]) -> list[str]:
    """What the claim comes to where its words are read in another way."""
    notes = []
    for other in claim.otherwise:
        found = _finding(other.rule, info, sides, samples)
        notes.append(f"Read otherwise, as {text.lower_first(other.reading)}, it is {found.verdict}: {found.summary}")
    return notes


def _judge_comparison(
    claim: Claim, rule: Similar | Ordered, info: RunInfo, sides: Sides, samples: Sequence[Sample]
) -> Judgement:
    link_id = _link(rule, info, samples)
    if link_id is None:
        wanted = text.listing([f"'{link}'" for link in rule.links]) or "any"
        have = text.listing([f"'{link.id}'" for link in info.links]) or "none"
        summary = f"The claim is about the link profile {wanted}, and this run has {have}."
        if info.fabric == HOSTS:
            summary = (
                f"Not judged here: the claim is about the link {wanted}, whose rate is part of it. Hosts have {have}."
            )
        return Judgement(claim, Verdict.NOT_CHECKABLE, summary)
    finding = judge_comparison(rule, link_id, sides, rule.reference)
    notes = [f"Judged on the link profile '{link_id}'."] if finding.evidence else []
    if rule.also is not None and finding.evidence:
        other = judge_comparison(rule, link_id, sides, rule.also)
        notes.append(f"Held against {rule.also.name} instead, it is {other.verdict}: {text.lower_first(other.summary)}")
    notes += [*sides.notes, *_repetition_notes(rule, finding, samples)]
    return Judgement(
        claim, finding.verdict, finding.summary, tuple(notes), finding.evidence, rule.subject.name, rule.reference.name
    )


def _repetition_notes(rule: Rule, finding: Finding, samples: Sequence[Sample]) -> list[str]:
    """What to do where a verdict is missing because nothing was measured a second time."""
    if finding.verdict is not Verdict.NOT_CHECKABLE or not _needs_repetitions(rule):
        return []
    level_and_tests = _tests(rule)
    measured = {
        sample.repetition
        for sample in samples
        if sample.ok and sample.fabric != SIMULATED and (sample.level, sample.test) in level_and_tests
    }
    if not 0 < len(measured) < MIN_REPETITIONS:
        return []
    return [f"A single repetition has no spread: a verdict needs {MIN_REPETITIONS} repetitions or more."]


def unreachable(claims: Iterable[Claim], repetitions: int, fabric: str) -> list[str]:
    """A sentence for each claim that gets no verdict whatever is measured, because there are too few repetitions.

    ``fabric`` is the kind of fabric: one that is simulated needs no repetitions.
    """
    if fabric == SIMULATED or repetitions >= MIN_REPETITIONS:
        return []
    found = [claim for claim in claims if all(_needs_repetitions(rule) for rule in _rules(claim))]
    return [
        f"{claim.id} will get no verdict from {text.plural(repetitions, 'repetition')}, whatever is measured: "
        f"it needs {MIN_REPETITIONS} or more, which show how far values spread."
        for claim in found
    ]


def _rules(claim: Claim) -> list[Rule]:
    """The rules by which a claim may be judged where values are measured."""
    return [claim.rule] if claim.mpi is None else [claim.rule, claim.mpi.rule]


def _needs_repetitions(rule: Rule) -> bool:
    """Whether a rule is about values, and not about which runs complete."""
    if isinstance(rule, All):
        return any(_needs_repetitions(each) for each in rule.rules)
    return not isinstance(rule, Fails | Completes | Answers)


def _tests(rule: Rule) -> set[tuple[str, str]]:
    """Level and test of everything that a rule is about."""
    if isinstance(rule, All):
        return {each for part in rule.rules for each in _tests(part)}
    if isinstance(rule, Parts):
        return {(part.level, part.test) for part in rule.parts}
    if isinstance(rule, Gains):
        return {(rule.level, gain.test) for gain in rule.gains}
    if isinstance(rule, Answers):
        return {(rule.level, question.test) for question in rule.questions}
    tests = rule.tests if isinstance(rule, Fails | Completes) else (rule.test,)
    return {(rule.level, test) for test in tests}


def simulated_tests(claim: Claim) -> frozenset[tuple[str, str]]:
    """Level and test of everything that a claim is about where a run is simulated."""
    return frozenset(_tests(_simulated(claim).rule))


def _at_its_level(claim: Claim, samples: Sequence[Sample]) -> Claim:
    """The claim with its rule for MPI, if that is what was measured."""
    if claim.mpi is None:
        return claim
    tests = _tests(claim.mpi.rule)
    return _judged_by(claim, claim.mpi) if any((each.level, each.test) in tests for each in samples) else claim


def _simulated(claim: Claim) -> Claim:
    """The claim with its rule for simulations, if it has one."""
    return claim if claim.virtual is None else _judged_by(claim, claim.virtual)


def _judged_by(claim: Claim, other: AtLevel) -> Claim:
    changed = {name: getattr(other, name) for name in ("stand_in", "rule_text", "rule", "by_construction")}
    # Through MPI as at the network level, the run is the same emulated one.
    scales = other.scales if other is claim.virtual else claim.scales
    return claim.model_copy(update=changed | {"scales": scales})


def _link(rule: Comparison, info: RunInfo, samples: Sequence[Sample]) -> str | None:
    present = [link.id for link in info.links]
    if rule.links:
        return next((link for link in rule.links if link in present), None)
    measured = {each.link for each in samples if each.ok and (each.level, each.test) == (rule.level, rule.test)}
    return next((link for link in present if link in measured), present[0] if present else None)


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
