"""What is said of iWARP: held against RoCE of the same run, and a question that is answered."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocelab.claims import Judgement, Verdict, claims_by_id, judge
from rocelab.claims.tests.test_claims import INFO, LATENCY, repeated
from rocelab.results import Sample

#: Of each claim: its test, the sizes that it is about, and the variants.
ABOUT = {
    "R8": ("latency", (64, 512, 4096), ("send", "write")),
    "R9": ("bandwidth", (65536, 1048576, 4194304), ("send", "write")),
    "R10": ("cpu-use", (65536, 1048576), ("send", "write")),
}
#: How many times as good RoCE is as iWARP, by variant and size.
Times = Callable[[str, int], float]
EVERY = pytest.mark.parametrize("claim", ABOUT)


def values(test: str, value: float, **changes: Any) -> list[Sample]:
    """Repetitions of a measurement; the CPU time of the two ends is one and two thirds of what is asked for."""
    if test == "latency":
        return repeated(value, **LATENCY, **changes)
    if test == "bandwidth":
        return repeated(value, test=test, **changes)
    return [
        each
        for end, part in (("client", 1 / 3), ("server", 2 / 3))
        for each in repeated(value * part, test=test, metric=f"cpu_{end}_us_per_mib", unit="us/MiB", **changes)
    ]


def measured(claim: str, times: Times, link: str = "unshaped") -> list[Sample]:
    """iWARP at 100, RoCE so many times as good."""
    test, sizes, variants = ABOUT[claim]
    found: list[Sample] = []
    for variant, size in itertools.product(variants, sizes):
        of: dict[str, Any] = {"link": link, "variant": variant, "size_bytes": size}
        factor = times(variant, size)
        found += values(test, 100.0, interconnect="soft-iwarp", **of)
        found += values(test, 100.0 * factor if test == "bandwidth" else 100.0 / factor, interconnect="soft-roce", **of)
    return found


def judged(claim: str, samples: Sequence[Sample]) -> Judgement:
    return judge(claims_by_id([claim])[0], INFO, samples)


@EVERY
def test_what_roce_is_said_to_be_ahead_in_is_reproduced_where_it_is_ahead_everywhere(claim: str) -> None:
    found = judged(claim, measured(claim, lambda *_: 1.5))
    assert found.verdict is Verdict.REPRODUCED
    assert "1.50" in found.summary


@EVERY
def test_a_tie_contradicts(claim: str) -> None:
    assert judged(claim, measured(claim, lambda *_: 1.0)).verdict is Verdict.CONTRADICTED


@EVERY
def test_one_size_of_one_operation_at_which_iwarp_is_ahead_contradicts(claim: str) -> None:
    _, sizes, variants = ABOUT[claim]
    for place in itertools.product(variants, sizes):
        samples = measured(claim, lambda *at, place=place: 0.8 if at == place else 1.5)
        assert judged(claim, samples).verdict is Verdict.CONTRADICTED


@EVERY
def test_without_iwarp_nothing_is_said(claim: str) -> None:
    only = [each for each in measured(claim, lambda *_: 1.5) if each.interconnect != "soft-iwarp"]
    found = judged(claim, only)
    assert found.verdict is Verdict.NOT_CHECKABLE
    assert "samples of iWARP" in found.summary


@EVERY
def test_over_a_shaped_cable_it_is_told_beside_the_verdict(claim: str) -> None:
    samples = measured(claim, lambda *_: 1.5) + measured(claim, lambda *_: 1.0, "cable-25")
    found = judged(claim, samples)
    assert found.verdict is Verdict.REPRODUCED
    assert any("25 Gbps, it is contradicted" in note for note in found.notes)


@EVERY
def test_iwarp_counts_under_its_best_control_at_each_size(claim: str) -> None:
    test, (short, *longer), variants = ABOUT[claim]
    # Under the control measured first RoCE is ahead everywhere, under the other at all sizes but
    # one.
    first = [
        dataclasses.replace(each, variant=f"{each.variant}@default") if each.interconnect == "soft-iwarp" else each
        for each in measured(claim, lambda *_: 1.5)
    ]
    assert judged(claim, first).verdict is Verdict.REPRODUCED
    other: list[Sample] = []
    for variant, size in itertools.product(variants, (short, *longer)):
        times = 1.5 if size == short else 0.5
        of: dict[str, Any] = {"link": "unshaped", "variant": f"{variant}@cubic", "size_bytes": size}
        value = 100.0 * times if test == "bandwidth" else 100.0 / times
        other += values(test, value, interconnect="soft-iwarp", **of)
    found = judged(claim, [*first, *other])
    assert found.verdict is Verdict.CONTRADICTED
    assert "1.00" in found.summary
    assert "iWARP is the best of send@default and send@cubic at each size." in found.notes


def test_cpu_time_is_that_of_both_ends_together() -> None:
    # The client's of RoCE is half of iWARP's, the server's twice: together it is more.
    samples: list[Sample] = []
    for variant, size in itertools.product(*reversed(ABOUT["R10"][1:])):
        of: dict[str, Any] = {"link": "unshaped", "test": "cpu-use", "variant": variant, "size_bytes": size}
        for end, roce in (("client", 50.0), ("server", 200.0)):
            place = of | {"metric": f"cpu_{end}_us_per_mib", "unit": "us/MiB"}
            samples += repeated(100.0, interconnect="soft-iwarp", **place)
            samples += repeated(roce, interconnect="soft-roce", **place)
    found = judged("R10", samples)
    assert found.verdict is Verdict.CONTRADICTED
    assert "0.80" in found.summary
