"""Leaves out of a study what cannot be measured on this machine, and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocelab import peers
from rocelab.launch import reception
from rocelab.study.schema import AnyTest, Study


def measurable(
    study: Study, why_not: Callable[[peers.Reception], str | None] = reception.unavailable
) -> tuple[Study, tuple[str, ...]]:
    """The study without the TCPs that cannot be measured here, and a sentence about each of them."""
    reasons: dict[str, str] = {}
    asked: dict[peers.Reception, str | None] = {}
    for test in study.test:
        for variant in test.variants.get(peers.TCP, ()):
            wanted = peers.reception_of(variant)
            if wanted not in asked:
                asked[wanted] = why_not(wanted)
            if (reason := asked[wanted]) is not None:
                reasons[peers.name_of(variant)] = reason
    if not reasons:
        return study, ()
    tests = [reduced for test in study.test if (reduced := _without(test, reasons)) is not None]
    said = tuple(f"{peers.title(name)} ({name}) is not measured here: {reason}." for name, reason in reasons.items())
    return study.model_copy(update={"test": tests}), said


def _without(test: AnyTest, names: Mapping[str, str]) -> AnyTest | None:
    """The test without these TCPs; None if nothing else takes part."""
    left = {
        name: [each for each in chosen if name != peers.TCP or peers.name_of(each) not in names]
        for name, chosen in test.variants.items()
    }
    kept = {name: chosen for name, chosen in left.items() if chosen}
    return test.model_copy(update={"variants": kept}) if kept else None
