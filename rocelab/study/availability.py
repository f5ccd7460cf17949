"""Leaves out of a study what cannot be measured on this machine, and says why."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rocelab import peers
from rocelab.launch import reception
from rocelab.results import SIDE_BY_SIDE_TEST
from rocelab.stats import text
from rocelab.study.schema import AnyTest, Study
from rocelab.study.side_by_side_tables import SideBySideTable, is_one_program, processors_needed


def measurable(
    study: Study,
    why_not: Callable[[peers.Reception], str | None] = reception.unavailable,
    *,
    processors: int | None = None,
) -> tuple[Study, tuple[str, ...]]:
    """The study without what cannot be measured here, and a sentence about each thing that cannot.

    These are TCPs, and of programs side by side as many as there are no `processors` for; None: there are enough.
    """
    tests, said = _with_measurable_tcps(study, why_not)
    fitting: list[AnyTest] = []
    for test in tests:
        if processors is None or not isinstance(test, SideBySideTable) or test.processors != "own":
            fitting.append(test)
            continue
        fitting += _within(test, processors)
        said += _too_few(test, processors)
    if not said:
        return study, ()
    return study.model_copy(update={"test": fitting}), tuple(dict.fromkeys(said))


def _with_measurable_tcps(
    study: Study, why_not: Callable[[peers.Reception], str | None]
) -> tuple[list[AnyTest], list[str]]:
    reasons: dict[str, str] = {}
    asked: dict[peers.Reception, str | None] = {}
    for test in study.test:
        for variant in test.variants.get(peers.TCP, ()):
            wanted = peers.reception_of(variant)
            if wanted not in asked:
                asked[wanted] = why_not(wanted)
            if (reason := asked[wanted]) is not None:
                reasons[peers.name_of(variant)] = reason
    tests = [reduced for test in study.test if (reduced := _without(test, reasons)) is not None]
    return tests, [f"{peers.title(name)} ({name}) is not measured here: {reason}." for name, reason in reasons.items()]


def _without(test: AnyTest, names: Mapping[str, str]) -> AnyTest | None:
    """The test without these TCPs; None if nothing else takes part."""
    return _with_variants(test, lambda name, each: name != peers.TCP or peers.name_of(each) not in names)


def _with_variants(test: AnyTest, wanted: Callable[[str, str], bool]) -> AnyTest | None:
    """The test with those variants of interconnects that are wanted; None if there is none."""
    left = {name: [each for each in chosen if wanted(name, each)] for name, chosen in test.variants.items()}
    kept = {name: chosen for name, chosen in left.items() if chosen}
    if kept == test.variants:
        return test
    return test.model_copy(update={"variants": kept}) if kept else None


def _kinds(test: SideBySideTable) -> Iterator[tuple[bool, SideBySideTable]]:
    """The test with the variants that are many programs, and with those that are one."""
    for in_one in (False, True):
        part = _with_variants(test, lambda _, each, kind=in_one: is_one_program(each) == kind)  # type: ignore[misc]
        if isinstance(part, SideBySideTable):
            yield in_one, part


def _needed(test: SideBySideTable, pairs: int) -> int:
    return max(processors_needed(each, pairs) for chosen in test.variants.values() for each in chosen)


def _within(test: SideBySideTable, processors: int) -> Iterator[SideBySideTable]:
    """The test with as many pairs as there are processors for: variants that take more of these are a test apart."""
    if all(_needed(test, pairs) <= processors for pairs in test.pairs):
        yield test
        return
    for _, part in _kinds(test):
        if fitting := [pairs for pairs in part.pairs if _needed(part, pairs) <= processors]:
            yield part.model_copy(update={"pairs": fitting})


def _too_few(test: SideBySideTable, processors: int) -> Iterator[str]:
    for in_one, part in _kinds(test):
        left_out = sorted(pairs for pairs in part.pairs if _needed(part, pairs) > processors)
        if not left_out:
            continue
        have, needed = text.plural(processors, "processor"), _needed(part, left_out[0])
        what = f"{text.listing([str(pairs) for pairs in left_out])} {'pair' if left_out == [1] else 'pairs'}"
        first = f"{text.plural(left_out[0], 'pair')} {'needs' if left_out[0] == 1 else 'need'} {needed}"
        if in_one:
            what, first = "one program with queue pairs", f"it needs {needed}"
        verb = "is" if in_one or left_out == [1] else "are"
        yield f"{SIDE_BY_SIDE_TEST}: {what} {verb} left out, for this run has {have}; {first}."
