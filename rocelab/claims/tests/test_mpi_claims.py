"""Claims that were made about MPI: judged on MPI where a run has it, and the rules that only they need."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

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


def pairs(*ranks: int) -> list[Sample]:
    return [each for n in ranks for each in mpi([1, 64], lambda _: 1.0, **LATENCY, test="multi_lat", ranks=n)]


def test_completes() -> None:
    assert judged("S4", pairs(2, 4, 8)).verdict is Verdict.REPRODUCED
    assert "2, 4 and 8 processes" in judged("S4", pairs(2, 4, 8)).summary
    assert judged("S4", pairs(2, 4)).verdict is Verdict.NOT_CHECKABLE
    one_failed = [*pairs(2, 4, 8), sample(None, **LATENCY, test="multi_lat", size_bytes=128)]
    assert judged("S4", one_failed).verdict is Verdict.CONTRADICTED
    only_tcp = [each for each in pairs(2, 4, 8) if each.interconnect == "tcp"]
    assert judged("S4", only_tcp).verdict is Verdict.NOT_CHECKABLE
    interrupted = dataclasses.replace(INFO, status="interrupted")
    assert judge(claims_by_id(["S4"])[0], interrupted, pairs(2, 4, 8)).verdict is Verdict.NOT_CHECKABLE


def test_every_claim_about_mpi_has_its_figure() -> None:
    figures = {(figure.source.id, figure.test) for figure in figures_of(all_claims())}
    assert len([test for source, test in figures if source == "softroce1g"]) == 8
    assert {"latency", "bw", "bibw"} == {test for source, test in figures if source == "lanl2010"}
