"""Claims that were made about MPI: judged on MPI where a run has it, and the rules that only they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocelab.claims import Judgement, Verdict, all_claims, claims_by_id, figures_of, judge
from rocelab.claims.tests.test_claims import INFO, SMALL, both, repeated, sample
from rocelab.results import Sample

OPEN_MPI: dict[str, Any] = {"level": "mpi", "variant": "openmpi-ob1"}
LATENCY: dict[str, Any] = {**OPEN_MPI, "metric": "latency_us", "unit": "us"}


def mpi(sizes: Sequence[int], ratio_at: Callable[[int], float], **changes: Any) -> list[Sample]:
    """Open MPI's own TCP at 100, Soft RoCE at 100 times what ``ratio_at`` says."""
    samples: list[Sample] = []
    for size in sizes:
        samples += repeated(100.0, size_bytes=size, **(OPEN_MPI | changes))
        soft = {"interconnect": "soft-roce", "variant": "openmpi-ucx"}
        samples += repeated(100.0 * ratio_at(size), size_bytes=size, **(OPEN_MPI | changes | soft))
    return samples


def judged(claim_id: str, samples: Sequence[Sample]) -> Judgement:
    return judge(claims_by_id([claim_id])[0], INFO, samples)


def test_mpi_replaces_the_network_level_where_it_was_measured() -> None:
    network = both(SMALL, lambda _: 3.0)
    stand_in = judged("S1", network)
    assert stand_in.verdict is Verdict.CONTRADICTED
    assert "network level" in stand_in.claim.stand_in
    through_mpi = judged("S1", network + mpi(SMALL, lambda _: 1.0, test="bw"))
    assert through_mpi.verdict is Verdict.REPRODUCED
    assert "through MPI" in through_mpi.claim.stand_in
    assert {row.reference_name for row in through_mpi.evidence} == {"TCP, Open MPI's own"}


def test_the_best_tcp_is_chosen_of_all_mpis_and_controls() -> None:
    others = [
        each
        for variant, mbps in (("openmpi-ucx@cubic", 300.0), ("mpich-ofi@bbr", 200.0))
        for size in SMALL
        for each in repeated(mbps, size_bytes=size, **(OPEN_MPI | {"test": "bw", "variant": variant}))
    ]
    result = judged("S1", mpi(SMALL, lambda _: 1.0, test="bw") + others)
    assert result.verdict is Verdict.CONTRADICTED
    assert "Held against TCP, Open MPI with UCX, cubic." in result.summary


def test_a_difference_that_is_too_small_is_none() -> None:
    sizes = [size for size in SMALL if size >= 4]
    gatherv = {**LATENCY, "test": "gatherv", "nodes": 2, "ranks": 8}
    assert judged("S6", mpi(sizes, lambda _: 0.8, **gatherv)).verdict is Verdict.REPRODUCED
    assert judged("S6", mpi(sizes, lambda _: 0.93, **gatherv)).verdict is Verdict.NOT_CHECKABLE
    assert judged("S6", mpi(sizes, lambda _: 1.07, **gatherv)).verdict is Verdict.CONTRADICTED


def test_a_margin_has_to_be_there_with_the_whole_interval() -> None:
    sizes = [size for size in SMALL if size >= 4]
    gatherv = {**LATENCY, "test": "gatherv", "nodes": 2, "ranks": 8}
    assert judged("S6", mpi(sizes, lambda _: 0.89, **gatherv)).verdict is Verdict.NOT_CHECKABLE
    assert judged("S6", mpi(sizes, lambda _: 0.86, **gatherv)).verdict is Verdict.REPRODUCED


def test_broadcast_has_its_exception() -> None:
    bcast = {**LATENCY, "test": "bcast"}
    assert judged("S5", mpi(SMALL, lambda size: 1.5 if size == 512 else 0.5, **bcast)).verdict is Verdict.REPRODUCED
    assert judged("S5", mpi(SMALL, lambda _: 0.5, **bcast)).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("claim", "test", "against"),
    [
        # Up to 64 bytes, and from 1024 on; nothing is said between.
        ("S7", "allreduce", lambda size: 1.5 if size >= 1024 else 0.5),
        ("S7", "allreduce", lambda size: 1.5 if size <= 64 else 0.5),
        ("S8", "reduce_scatter", lambda size: 1.5 if size in (64, 4096) else 0.5),
    ],
)
def test_reductions_have_to_be_faster_wherever_the_source_says_so(
    claim: str, test: str, against: Callable[[int], float]
) -> None:
    sizes = [size for size in SMALL if size >= 4]
    between = mpi(sizes, lambda size: 1.5 if claim == "S7" and 64 < size < 1024 else 0.5, **LATENCY, test=test)
    assert judged(claim, between).verdict is Verdict.REPRODUCED
    assert judged(claim, mpi(sizes, against, **LATENCY, test=test)).verdict is Verdict.CONTRADICTED


def test_latency_has_two_winners_and_both_ways_at_once_none() -> None:
    sizes = [*SMALL, 16384, 32768]
    ahead = mpi(sizes, lambda size: 1.3 if size <= 2048 else 0.7, **LATENCY, test="latency")
    assert judged("S2", ahead).verdict is Verdict.REPRODUCED
    assert judged("S2", mpi(sizes, lambda _: 0.7, **LATENCY, test="latency")).verdict is Verdict.CONTRADICTED
    assert judged("S2", mpi(sizes, lambda _: 1.3, **LATENCY, test="latency")).verdict is Verdict.CONTRADICTED
    assert judged("S3", mpi(SMALL, lambda _: 1.02, test="bibw")).verdict is Verdict.REPRODUCED
    assert judged("S3", mpi(SMALL, lambda _: 1.3, test="bibw")).verdict is Verdict.CONTRADICTED


def pairs(*ranks: int, times: float = 1.0, of_eight: float | None = None) -> list[Sample]:
    """Several pairs at once: Soft RoCE takes so many times as long as TCP, and with eight processes so many."""
    return [
        each
        for n in ranks
        for each in mpi(
            [1, 64],
            lambda _, n=n: of_eight if of_eight is not None and n == 8 else times,  # type: ignore[misc]
            **LATENCY,
            test="multi_lat",
            ranks=n,
        )
    ]


def test_several_pairs_complete_and_are_mostly_as_good_as_ethernet() -> None:
    assert judged("S4", pairs(2, 4, 8)).verdict is Verdict.REPRODUCED
    assert "2, 4 and 8 processes" in judged("S4", pairs(2, 4, 8)).summary
    assert judged("S4", pairs(2, 4, 8, times=0.7, of_eight=2.0)).verdict is Verdict.REPRODUCED
    assert judged("S4", pairs(2, 4, 8, times=1.3)).verdict is Verdict.CONTRADICTED
    slower = judged("S4", pairs(2, 4, 8, times=1.3, of_eight=0.7))
    assert slower.verdict is Verdict.CONTRADICTED
    assert "better in 2 of 6 cases, and worse by more than 10 % in 4" in slower.summary
    # As good as it may be with a spread around the tolerance: neither.
    assert judged("S4", pairs(2, 4, 8, times=1.1)).verdict is Verdict.NOT_CHECKABLE


def test_completes() -> None:
    assert judged("S4", pairs(2, 4)).verdict is Verdict.NOT_CHECKABLE
    one_failed = [*pairs(2, 4, 8), sample(None, **LATENCY, test="multi_lat", size_bytes=128)]
    assert judged("S4", one_failed).verdict is Verdict.CONTRADICTED
    only_tcp = [each for each in pairs(2, 4, 8) if each.interconnect == "tcp"]
    assert judged("S4", only_tcp).verdict is Verdict.NOT_CHECKABLE
    interrupted = dataclasses.replace(INFO, status="interrupted")
    assert judge(claims_by_id(["S4"])[0], interrupted, pairs(2, 4, 8)).verdict is Verdict.NOT_CHECKABLE


def answers() -> list[Sample]:
    """What the questions of further work need, with Soft RoCE at half of TCP's values."""
    percent = OPEN_MPI | {"metric": "overlap_percent", "unit": "%"}
    made = [each for test in ("bcast", "allreduce", "alltoall") for each in mpi([4, 64], _half, **LATENCY, test=test)]
    return made + [
        each for test in ("overlap_send", "overlap_recv") for each in mpi([4, 64], _half, **percent, test=test)
    ]


def _half(_: int) -> float:
    return 0.5


def test_a_question_is_answered_and_never_reproduced() -> None:
    answered = judged("L6", answers())
    assert answered.verdict is Verdict.ANSWERED
    assert "Broadcast takes: Soft RoCE 50.0 \u00b5s to 50.0 \u00b5s, TCP 100 \u00b5s to 100 \u00b5s" in answered.summary
    assert "over Soft RoCE, 0 failed." in answered.summary


def test_what_fails_is_part_of_an_answer_and_what_is_missing_leaves_it_open() -> None:
    soft = {"interconnect": "soft-roce", "variant": "openmpi-ucx", "size_bytes": 128}
    failed = judged("L6", [*answers(), sample(None, **(LATENCY | soft), test="bcast")])
    assert failed.verdict is Verdict.ANSWERED
    assert ", 1 failed." in failed.summary
    without = judged("L6", [each for each in answers() if each.test != "overlap_recv"])
    assert without.verdict is Verdict.NOT_CHECKABLE
    assert "no overlap_recv samples of both sides" in without.summary


def beside_iwarp(links: Sequence[str]) -> list[Sample]:
    """What the question about iWARP needs on these links."""
    made: list[Sample] = []
    for link in links:
        for name, value in (("soft-roce", 50.0), ("soft-iwarp", 100.0)):
            of: dict[str, Any] = {"link": link, "interconnect": name, "variant": "send", "size_bytes": 64}
            made += repeated(value, **(of | LATENCY | {"level": "network", "test": "latency"} | of))
            made += repeated(value, **of)
            for end in ("client", "server"):
                cpu: dict[str, Any] = {"test": "cpu-use", "metric": f"cpu_{end}_us_per_mib", "unit": "us/MiB"}
                made += repeated(value, **of, **cpu)
            through = of | {"level": "mpi", "variant": "mpich-ofi"}
            for test in ("latency", "bcast", "allreduce", "alltoall"):
                made += repeated(value, **(through | {"test": test, "metric": "latency_us", "unit": "us"}))
            made += repeated(value, **(through | {"test": "bw"}))
    return made


def test_how_roce_compares_with_iwarp_is_answered_where_every_loss_was_measured() -> None:
    answered = judged("L7", beside_iwarp(["loss-0", "loss-0-1", "loss-1"]))
    assert answered.verdict is Verdict.ANSWERED
    assert (
        "With 1 % loss, SEND takes: RoCE 50.0 \u00b5s to 50.0 \u00b5s, iWARP 100 \u00b5s"
        in answered.summary.replace("with 1 %", "With 1 %")
    )
    # Both ends together.
    assert "takes of the processors: RoCE 100 \u00b5s/MiB" in answered.summary
    open_still = judged("L7", beside_iwarp(["loss-0", "loss-1"]))
    assert open_still.verdict is Verdict.NOT_CHECKABLE
    assert "latency (loss-0-1)" in open_still.summary


def test_the_answer_about_iwarp_is_that_of_its_best_control() -> None:
    links = ["loss-0", "loss-0-1", "loss-1"]
    made = [each for each in beside_iwarp(links) if each.interconnect != "soft-iwarp"]
    for control, factor in (("cubic", 1.0), ("default", 0.25)):
        for each in beside_iwarp(links):
            if each.interconnect == "soft-iwarp" and each.value is not None:
                variant, value = f"{each.variant}@{control}", each.value * factor
                made.append(dataclasses.replace(each, variant=variant, value=value))
    answered = judged("L7", made)
    assert answered.verdict is Verdict.ANSWERED
    # Of times the lowest, of bandwidths the highest.
    assert "ithout loss, SEND takes: RoCE 50.0 \u00b5s to 50.0 \u00b5s, iWARP 25.0 \u00b5s" in answered.summary
    assert "ithout loss, SEND moves: RoCE 50.0 Mbps to 50.0 Mbps, iWARP 100 Mbps" in answered.summary
    assert "takes of the processors: RoCE 100 \u00b5s/MiB to 100 \u00b5s/MiB, iWARP 50.0" in answered.summary
    assert "through MPI without loss, a stream moves: RoCE 50.0 Mbps to 50.0 Mbps, iWARP 100" in answered.summary
    assert any(note.startswith("iWARP is the best of send@cubic and send@default") for note in answered.notes)


def test_every_claim_about_mpi_has_its_figure() -> None:
    figures = {(figure.source.id, figure.test) for figure in figures_of(all_claims())}
    assert len([test for source, test in figures if source == "softroce1g"]) == 8
    assert {"latency", "bw", "bibw"} == {test for source, test in figures if source == "lanl2010"}
