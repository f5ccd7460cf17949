"""Claims whose words have two meanings: the verdict is of one, and the other is told."""

from __future__ import annotations

from typing import Any

import pytest

from rocelab.claims import Verdict
from rocelab.claims.tests.simulated import series, verdict_of
from rocelab.results import Sample

SIZES = [1 << bit for bit in range(23)]


def network(times: float, latency_times: float = 0.5) -> list[Sample]:
    """RoCE 40GigE and 10GigE, whose bandwidths differ by up to so many times."""
    of: dict[str, Any] = {"link": "sx6036", "variant": "send"}
    bandwidth: dict[str, Any] = of | {"test": "bandwidth", "metric": "bandwidth_mbps"}
    latency: dict[str, Any] = of | {"test": "latency", "metric": "latency_us"}
    made = series(lambda size: min(9_000.0, 10.0 * size), SIZES, interconnect="roce-10g", **bandwidth)
    made += series(lambda size: min(9_000.0 * times, 10.0 * size), SIZES, interconnect="roce-40g", **bandwidth)
    made += series(lambda size: 2 + size / 1000, SIZES, interconnect="roce-10g", **latency)
    made += series(lambda size: latency_times * (2 + size / 1000), SIZES, interconnect="roce-40g", **latency)
    return made


@pytest.mark.parametrize(
    ("times", "verdict", "other"),
    [
        (3.0, Verdict.REPRODUCED, Verdict.CONTRADICTED),
        (3.97, Verdict.CONTRADICTED, Verdict.REPRODUCED),
        (2.0, Verdict.CONTRADICTED, Verdict.CONTRADICTED),
    ],
)
def test_three_times_better_is_three_times_and_four_times_is_told(
    times: float, verdict: Verdict, other: Verdict
) -> None:
    found = verdict_of("V3", network(times))
    assert found.verdict is verdict
    assert len(found.notes) == 1
    assert f"four times as much (3.6 to 4.4), it is {other}: " in found.notes[0]


@pytest.mark.parametrize("latency_times", [1.1, 1.0, 0.98])
def test_a_40_gige_that_is_no_faster_contradicts_whatever_its_bandwidth(latency_times: float) -> None:
    assert verdict_of("V3", network(3.0, latency_times=latency_times)).verdict is Verdict.CONTRADICTED


def lanl(apart_us: float, *, roce_times: float = 1.5, no_rdma_times: float = 1.02) -> list[Sample]:
    """InfiniBand, RoCE so much behind at 128 B and so many times as slow elsewhere, and no RDMA at the largest size."""
    of: dict[str, Any] = {"level": "mpi", "test": "latency", "metric": "latency_us", "link": "cable", "variant": "mpi"}

    def infiniband(size: int) -> float:
        return 1.5 + size / 3000

    def roce(size: int) -> float:
        return infiniband(size) + apart_us if size == 128 else roce_times * infiniband(size)

    made = series(infiniband, SIZES, interconnect="infiniband-qdr", **of)
    made += series(roce, SIZES, interconnect="roce-10g", **of)
    made += series(lambda size: no_rdma_times * roce(size) + 5, SIZES, interconnect="tcp-10g", **of)
    return made


@pytest.mark.parametrize(
    ("apart_us", "verdict", "other"),
    [
        (0.6, Verdict.REPRODUCED, Verdict.CONTRADICTED),
        (1.7, Verdict.CONTRADICTED, Verdict.REPRODUCED),
        (-0.2, Verdict.CONTRADICTED, Verdict.CONTRADICTED),
        (0.0, Verdict.CONTRADICTED, Verdict.CONTRADICTED),
        (0.03, Verdict.CONTRADICTED, Verdict.CONTRADICTED),
    ],
)
def test_the_slide_is_judged_and_its_notes_are_told(apart_us: float, verdict: Verdict, other: Verdict) -> None:
    found = verdict_of("L2", lanl(apart_us))
    assert found.verdict is verdict
    assert f"1.7 us at 128 B, as the notes to the slides have it (within 10 %), it is {other}: " in found.notes[0]


def test_networks_that_are_close_or_come_together_may_be_alike() -> None:
    assert verdict_of("L2", lanl(0.6, roce_times=1.0, no_rdma_times=1.0)).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize("other", [{"roce_times": 2.2}, {"no_rdma_times": 1.2}])
def test_roce_that_is_not_close_or_no_rdma_that_stays_away_contradicts(other: dict[str, float]) -> None:
    assert verdict_of("L2", lanl(0.6, **other)).verdict is Verdict.CONTRADICTED
