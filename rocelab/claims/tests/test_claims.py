"""Each rule on the edges: just enough, one too many, too noisy, too little measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocelab import peers
from rocelab.claims import Claim, ClaimError, Verdict, all_claims, claims_by_id, judge, unreachable
from rocelab.claims.rules import Ordered, Side, Similar
from rocelab.results import LinkInfo, Provenance, RunInfo, RunStatus, Sample

SMALL = [1 << bit for bit in range(14)]
LARGE = [1 << bit for bit in range(17, 23)]
INFO = RunInfo(
    id="r", study="s", title="t", fabric="f", status="complete", started_at="2026-01-01T00:00:00Z", seed=1,
    repetitions=3, links=(LinkInfo("direct", "direct", 1500), LinkInfo("ethernet-1g", "bridge", 1500, 1000.0)),
    provenance=Provenance("m", "c", 2, 1, "k", "d", "rocelab", "0", "3"), planned_steps=1,
)  # fmt: skip


def claim(claim_id: str) -> Claim:
    return claims_by_id([claim_id])[0]


def sample(value: float | None, **changes: Any) -> Sample:
    fields: dict[str, Any] = {
        "study": "s", "run": "r", "fabric": "f", "link": "ethernet-1g", "interconnect": "tcp", "level": "network",
        "test": "bandwidth", "variant": "blocking", "size_bytes": 64, "params": {}, "metric": "bandwidth_mbps",
        "unit": "Mbps", "statistic": "mean", "value": value, "repetition": 0, "ok": value is not None,
        "error": None if value is not None else "stopped at its time limit", "tool": "t", "tool_version": "1",
        "command": "t", "started_at": "2026-01-01T00:00:00Z", "duration_s": 1.0, "log": None, "order": 0,
    }  # fmt: skip
    return Sample(**(fields | changes))


def repeated(value: float, noise: float = 0.01, **changes: Any) -> list[Sample]:
    return [sample(value * (1 + noise * (i - 1)), repetition=i, **changes) for i in range(3)]


def both(sizes: Sequence[int], ratio_at: Callable[[int], float], noise: float = 0.01, **changes: Any) -> list[Sample]:
    """Polling TCP at 100 at every size, Soft RoCE at 100 times what ``ratio_at`` says."""
    samples: list[Sample] = []
    for size in sizes:
        samples += repeated(100.0, noise, size_bytes=size, **({"variant": "busy-poll"} | changes))
        soft = {"interconnect": "soft-roce", "variant": "send"}
        samples += repeated(100.0 * ratio_at(size), noise, size_bytes=size, **(changes | soft))
    return samples


LATENCY: dict[str, Any] = {"test": "latency", "metric": "latency_us", "unit": "us", "statistic": "median"}


def test_every_claim_loads_and_says_where_it_is_from() -> None:
    claims = all_claims()
    numbers = [1], range(1, 8), range(1, 11), range(1, 9), range(1, 16)
    assert [each.id for each in claims] == [
        f"{letter}{number}" for letter, known in zip("KLRSV", numbers, strict=True) for number in known
    ]
    assert all(each.text.endswith(".") and each.rule_text.endswith(".") for each in claims)
    assert {each.source.id for each in claims} == {"calibration", "softroce1g", "lanl2010", "li2019", "vienne2012"}


def test_an_unknown_claim_is_met_with_the_known_ones() -> None:
    with pytest.raises(ClaimError, match=r"'s1'.*did you mean S1\?.*L1, L2, L3, L4"):
        claims_by_id(["s1"])


def test_similar_is_reproduced_with_one_exception_not_with_two() -> None:
    one = judge(claim("S1"), INFO, both(SMALL, lambda size: 1.9 if size == 64 else 1.02))
    assert one.verdict is Verdict.REPRODUCED
    assert [row.counts_as for row in one.evidence].count("different") == 1
    two = judge(claim("S1"), INFO, both(SMALL, lambda size: 1.9 if size in (64, 128) else 1.02))
    assert two.verdict is Verdict.CONTRADICTED
    assert "at 12 of 14 sizes" in two.summary
    assert "1.90\u00d7 (1.86 to 1.94) at 64 B" in two.summary


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.09, "reproduced"), (0.92, "reproduced"), (1.2, "contradicted"), (0.8, "contradicted")]
)
def test_similar_takes_the_tolerance_both_ways(ratio: float, verdict: str) -> None:
    assert judge(claim("S1"), INFO, both(SMALL, lambda _: ratio, noise=0.001)).verdict == verdict


def test_similar_but_too_noisy_is_not_decided() -> None:
    result = judge(claim("S1"), INFO, both(SMALL, lambda _: 1.3, noise=0.4))
    assert result.verdict is Verdict.NOT_CHECKABLE
    assert {row.counts_as for row in result.evidence} == {"unclear"}
    assert "spread too far" in result.summary


def test_a_single_repetition_cannot_contradict() -> None:
    single = [each for each in both(SMALL, lambda _: 3.0) if each.repetition == 0]
    result = judge(claim("S1"), INFO, single)
    assert result.verdict is Verdict.NOT_CHECKABLE
    assert any("a verdict needs 2 repetitions or more" in note for note in result.notes)


def test_a_side_names_one_variant_or_several_and_not_both() -> None:
    named = {"name": "TCP", "interconnect": "tcp"}
    assert Side.model_validate(named | {"variant": "a"}) == Side.model_validate(named | {"variants": ["a"]})
    with pytest.raises(ValueError, match="'variant' or 'variants', and not both"):
        Side.model_validate(named | {"variant": "a", "variants": ["b"]})


def test_what_one_repetition_cannot_decide_is_known_beforehand() -> None:
    claims = claims_by_id(["S1", "L6", "L5", "R4", "V13"])
    said = unreachable(claims, 1, "emulated")
    assert [each.split()[0] for each in said] == ["S1", "R4", "V13"]
    assert "no verdict from 1 repetition, whatever is measured: it needs 2 or more" in said[0]
    assert unreachable(claims, 2, "emulated") == []
    assert unreachable(claims, 1, "virtual") == []


def test_too_few_sizes_are_not_enough() -> None:
    assert judge(claim("S1"), INFO, both(SMALL[:11], lambda _: 1.0)).verdict is Verdict.NOT_CHECKABLE
    most = judge(claim("S1"), INFO, both(SMALL[:12], lambda _: 1.0))
    assert most.verdict is Verdict.REPRODUCED
    few = judge(claim("S1"), INFO, both(SMALL[:3], lambda _: 1.0))
    assert "3 of 14" in few.summary


def test_sizes_beyond_the_claim_do_not_count() -> None:
    samples = both(SMALL, lambda _: 1.0) + both(LARGE, lambda _: 9.0)
    result = judge(claim("S1"), INFO, samples)
    assert result.verdict is Verdict.REPRODUCED
    assert {row.size_bytes for row in result.evidence} == set(SMALL)


def test_the_other_link_is_not_taken_instead() -> None:
    info = dataclasses.replace(INFO, links=INFO.links[:1])
    result = judge(claim("S1"), info, both(SMALL, lambda _: 1.0, link="direct"))
    assert result.verdict is Verdict.NOT_CHECKABLE
    assert "'ethernet-1g', and this run has 'direct'" in result.summary


def test_a_claim_about_a_rate_is_not_judged_on_hosts() -> None:
    rail = dataclasses.replace(INFO, fabric="hosts", links=(LinkInfo("eth0", "rail", 1500),))
    found = judge(claim("S1"), rail, both(SMALL, lambda _: 1.0, link="eth0"))
    assert found.verdict is Verdict.NOT_CHECKABLE
    assert found.summary.startswith("Not judged here: the claim is about the link 'ethernet-1g'")


def test_one_side_alone_is_reported_without_a_verdict() -> None:
    only_soft = [each for each in both(LARGE, lambda _: 30.0, link="direct") if each.interconnect == "soft-roce"]
    result = judge(claim("L4"), INFO, only_soft)
    assert result.verdict is Verdict.NOT_CHECKABLE
    assert "no bandwidth samples of hardware RoCE" in result.summary
    assert "Soft RoCE alone: 3.00 Gbps to 3.00 Gbps" in result.summary


def test_a_tcp_that_waits_otherwise_is_a_note_never_the_verdict() -> None:
    blocking = [each for size in SMALL for each in repeated(400.0, size_bytes=size, variant="blocking@cubic")]
    result = judge(claim("S1"), INFO, both(SMALL, lambda _: 1.0) + blocking)
    assert result.verdict is Verdict.REPRODUCED
    (note,) = [note for note in result.notes if "instead" in note]
    assert "TCP in any way of waiting instead, it is contradicted" in note
    assert "Held against TCP blocking, cubic." in note


def test_the_best_of_several_references_is_named_at_each_size() -> None:
    soft = [each for each in both(SMALL, lambda _: 1.0) if each.interconnect == "soft-roce"]
    small_first: dict[str, Callable[[int], bool]] = {
        "busy-poll@cubic": lambda size: size <= 64,
        "busy-poll@bbr": lambda size: size > 64,
    }
    tcp = [
        each
        for variant, is_good in small_first.items()
        for size in SMALL
        for each in repeated(100.0 if is_good(size) else 50.0, size_bytes=size, variant=variant)
    ]
    result = judge(claim("S1"), INFO, soft + tcp)
    assert result.verdict is Verdict.REPRODUCED
    assert "TCP busy-polling, cubic (1 B to 64 B); TCP busy-polling, bbr (128 B to 8 KiB)" in result.summary
    assert {row.size_bytes: row.reference_name for row in result.evidence}[128] == "TCP busy-polling, bbr"
    assert {row.reference.median for row in result.evidence} == {100.0}


def test_soft_roce_is_compared_with_every_tcp_that_waits_alike() -> None:
    rules = [rule for each in all_claims() for rule in (each.rule, each.mpi and each.mpi.rule)]
    compared = [
        rule for rule in rules if isinstance(rule, Similar | Ordered) and rule.reference.interconnect == peers.TCP
    ]
    assert len(compared) == 10
    for rule in compared:
        known = list(peers.TCPS[rule.level])
        assert list(rule.reference.variants) == peers.references(rule.level, known, "polling")
        assert rule.also is None or list(rule.also.variants) == peers.references(rule.level, known)
        assert rule.subject.variants[0] in peers.SUBJECTS[rule.level]["polling"]


def test_ordered_needs_both_ranges() -> None:
    as_claimed = both(SMALL + LARGE, lambda size: 1.5 if size <= 2048 else 0.5, **LATENCY)
    as_claimed += both([16384, 32768], lambda _: 0.5, **LATENCY)
    assert judge(claim("S2"), INFO, as_claimed).verdict is Verdict.REPRODUCED
    faster = both([*SMALL, 16384, 32768], lambda _: 0.5, **LATENCY)
    result = judge(claim("S2"), INFO, faster)
    assert result.verdict is Verdict.CONTRADICTED
    assert "1 B to 2 KiB: contradicted, Soft RoCE is better at 12 of 12 sizes" in result.summary
    assert "(Soft RoCE is 2.0\u00d7 (1.96 to 2.0) as fast)" in result.summary
    assert "4 KiB to 32 KiB: reproduced" in result.summary
    no_difference = both([*SMALL, 16384, 32768], lambda _: 1.0, **LATENCY)
    assert judge(claim("S2"), INFO, no_difference).verdict is Verdict.NOT_CHECKABLE


def bandwidth_runs(**changes: Any) -> list[Sample]:
    soft = {"interconnect": "soft-roce", "variant": "send"}
    return [
        each
        for test in ("bandwidth", "bidirectional-bandwidth")
        for each in repeated(100.0, test=test, **(soft | changes))
    ]


def test_no_failure_contradicts_the_lock_ups() -> None:
    result = judge(claim("L5"), INFO, bandwidth_runs())
    assert result.verdict is Verdict.CONTRADICTED
    assert "3 of 3 bandwidth runs completed and 3 of 3 bidirectional-bandwidth runs completed" in result.summary


def test_frequent_failures_but_not_tcps_reproduce_the_lock_ups() -> None:
    failed = sample(None, test="bandwidth", interconnect="soft-roce", variant="write")
    result = judge(claim("L5"), INFO, [*bandwidth_runs(), failed])
    assert result.verdict is Verdict.REPRODUCED
    assert "3 of 4 bandwidth runs" in result.summary
    assert "stopped at its time limit" in result.summary
    assert judge(claim("L5"), INFO, [*bandwidth_runs(), sample(None)]).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(("sizes", "verdict"), [(6, "reproduced"), (7, "not checkable here")])
def test_a_rare_failure_is_neither_frequently_nor_never(sizes: int, verdict: str) -> None:
    runs = [each for size in range(1, sizes + 1) for each in bandwidth_runs(size_bytes=size)]
    failed = sample(None, test="bandwidth", interconnect="soft-roce", variant="send", size_bytes=999)
    result = judge(claim("L5"), INFO, [*runs, failed])
    assert result.verdict == verdict
    assert f"{3 * sizes} of {3 * sizes + 1} bandwidth runs completed" in result.summary


def test_where_nothing_worked_nothing_is_said() -> None:
    failed = [sample(None, test="bandwidth", interconnect="soft-roce", variant="send")]
    assert judge(claim("L5"), INFO, failed).verdict is Verdict.NOT_CHECKABLE
    assert judge(claim("L5"), INFO, []).verdict is Verdict.NOT_CHECKABLE


@pytest.mark.parametrize("status", ["running", "interrupted"])
def test_an_unfinished_run_cannot_show_that_every_run_completes(status: RunStatus) -> None:
    info = dataclasses.replace(INFO, status=status)
    assert judge(claim("L5"), info, bandwidth_runs()).verdict is Verdict.NOT_CHECKABLE


@pytest.mark.parametrize("claim_id", ["S1", "S2", "S3", "L4", "L5"])
def test_an_empty_run_is_not_checkable_and_says_why(claim_id: str) -> None:
    result = judge(claim(claim_id), INFO, [])
    assert result.verdict is Verdict.NOT_CHECKABLE
    assert len(result.summary) > 20


@pytest.mark.parametrize(
    ("part", "verdict"), [(0.96, Verdict.REPRODUCED), (0.7, Verdict.CONTRADICTED), (1.3, Verdict.CONTRADICTED)]
)
def test_soft_roce_may_also_be_simulated_beside_hardware(part: float, verdict: Verdict) -> None:
    simulated = dataclasses.replace(INFO, fabric="virtual", links=(LinkInfo("cable", "back-to-back", 0),))
    made_by = {"fabric": "virtual", "link": "cable", "level": "mpi", "test": "bw", "variant": "mpi"}
    samples = [
        sample(value, size_bytes=size_bytes, interconnect=interconnect, **made_by)
        for interconnect, value in (("urxe-10g", 9000.0 * part), ("roce-10g", 9000.0))
        for size_bytes in LARGE
    ]
    assert judge(claim("L4"), simulated, samples).verdict is verdict
