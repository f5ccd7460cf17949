"""The rules about the shape of single series, on their edges."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from rocelab.claims import Verdict, claims_by_id, figures_of, judge
from rocelab.claims.tests.test_claims import INFO, LATENCY, repeated
from rocelab.results import LinkInfo, Sample

SIZES = [1 << bit for bit in range(28)]
PINGPONG: dict[str, Any] = {"level": "mpi", "test": "PingPong", "interconnect": "soft-roce", "variant": "openmpi-ucx"}
RACKS = dataclasses.replace(
    INFO, links=(LinkInfo("racks", "two-level", 1500, 100.0, nodes_per_switch=8, uplink_rate_mbps=800.0),)
)


def pingpong(link: str, mbps_at: Callable[[int], float], sizes: Sequence[int] = SIZES) -> list[Sample]:
    return [
        each
        for size in sizes
        for each in repeated(size * 8 / mbps_at(size), 0.0, link=link, size_bytes=size, **(LATENCY | PINGPONG))
    ]


def mesh(link: str, total_mbps: Mapping[int, float], noise: float = 0.0) -> list[Sample]:
    what: dict[str, Any] = {"test": "mesh", "metric": "throughput_mbps", "statistic": "total", "link": link}
    side = {"interconnect": "soft-roce", "variant": "write"}
    return [
        each for nodes, total in total_mbps.items() for each in repeated(total, noise, nodes=nodes, **(what | side))
    ]


def growing(size: int) -> float:
    return min(900.0, size / 10)


@pytest.mark.parametrize(
    ("at_2_mib", "verdict"), [(900.0, Verdict.REPRODUCED), (815.0, Verdict.REPRODUCED), (800.0, Verdict.CONTRADICTED)]
)
def test_a_steady_bandwidth_may_fall_by_a_tenth_and_no_more(at_2_mib: float, verdict: Verdict) -> None:
    samples = pingpong("cable-10", growing)
    samples += pingpong("cable-25", lambda size: at_2_mib if size == 2 << 20 else growing(size))
    found = judge(claims_by_id(["R1"])[0], INFO, samples)
    assert found.verdict is verdict
    assert ("below a smaller size at 2 MiB" in found.summary) == (verdict is Verdict.CONTRADICTED)


def test_a_burst_faster_than_the_cable_is_no_best() -> None:
    def with_burst(size: int) -> float:
        return 2500.0 if size == 8192 else growing(size)

    info = dataclasses.replace(INFO, links=(LinkInfo("cable-25", "direct", 1500, 1000.0),))
    samples = pingpong("cable-10", growing) + pingpong("cable-25", with_burst)
    assert judge(claims_by_id(["R1"])[0], info, samples).verdict is Verdict.REPRODUCED
    assert judge(claims_by_id(["R1"])[0], INFO, samples).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("mtu_bytes", "at_2_mib", "verdict"),
    [
        # Packets of 1024 bytes with 58 of headers: 946 of 1000 Mbps are data. A tenth less is 852.
        (1500, 854.0, Verdict.REPRODUCED),
        (1500, 849.0, Verdict.CONTRADICTED),
        # Packets of 4096 bytes: 986, and 887.
        (9000, 854.0, Verdict.CONTRADICTED),
    ],
)
def test_headers_are_no_part_of_what_a_cable_carries(mtu_bytes: int, at_2_mib: float, verdict: Verdict) -> None:
    def burst(size: int) -> float:
        return 2500.0 if size == 8192 else at_2_mib if size == 2 << 20 else min(900.0, size / 10)

    info = dataclasses.replace(INFO, links=(LinkInfo("cable-25", "direct", mtu_bytes, 1000.0),))
    samples = pingpong("cable-10", growing) + pingpong("cable-25", burst)
    assert judge(claims_by_id(["R1"])[0], info, samples).verdict is verdict


@pytest.mark.parametrize("at_end", [700.0, 1050.0])
def test_a_bandwidth_that_still_changes_beyond_4_mib_is_not_steady(at_end: float) -> None:
    samples = pingpong("cable-25", growing) + pingpong(
        "cable-10", lambda size: at_end if size == SIZES[-1] else growing(size)
    )
    found = judge(claims_by_id(["R1"])[0], INFO, samples)
    assert found.verdict is Verdict.CONTRADICTED
    assert "of that at 4 MiB from there on" in found.summary


def test_a_steady_bandwidth_needs_both_ends_of_the_range() -> None:
    samples = pingpong("cable-10", growing) + pingpong("cable-25", growing, SIZES[:-1])
    found = judge(claims_by_id(["R1"])[0], INFO, samples)
    assert found.verdict is Verdict.NOT_CHECKABLE
    assert "128 MiB" in found.summary


@pytest.mark.parametrize(
    ("small", "large", "verdict"),
    [
        (0.9, 0.4, Verdict.REPRODUCED),
        (0.9, 0.7, Verdict.NOT_CHECKABLE),
        (0.9, 0.9, Verdict.CONTRADICTED),
        (0.3, 0.3, Verdict.NOT_CHECKABLE),
    ],
)
def test_degradation_is_one_of_large_messages_alone(small: float, large: float, verdict: Verdict) -> None:
    samples = [each for rate in (25, 10) for each in pingpong(f"cable-{rate}", growing, SIZES[:21])]
    samples += pingpong("shallow-10", lambda size: growing(size) * (0.9 if size <= 5120 else 0.4), SIZES[:21])
    samples += pingpong("shallow-25", lambda size: growing(size) * (small if size <= 5120 else large), SIZES[:21])
    assert judge(claims_by_id(["R2"])[0], INFO, samples).verdict is verdict


@pytest.mark.parametrize(("per_node", "verdict"), [(91.0, Verdict.REPRODUCED), (89.0, Verdict.CONTRADICTED)])
def test_every_mesh_of_a_rack_has_to_reach_its_part_of_the_rate(per_node: float, verdict: Verdict) -> None:
    samples = mesh("racks", {2: 190.0, 4: 380.0, 8: 8 * per_node, 16: 16 * 70.0})
    found = judge(claims_by_id(["R4"])[0], RACKS, samples)
    assert found.verdict is verdict
    assert f"{per_node:.1f} Mbps (of 8)" in found.summary


@pytest.mark.parametrize("per_node", [88.0, 92.0])
def test_a_mesh_whose_interval_holds_the_claim_decides_nothing(per_node: float) -> None:
    samples = mesh("racks", {2: 190.0, 4: 380.0, 8: 8 * per_node}, noise=0.02)
    found = judge(claims_by_id(["R4"])[0], RACKS, samples)
    assert found.verdict is Verdict.NOT_CHECKABLE
    assert f"{per_node:.0f} (" in found.summary


def test_what_was_done_once_is_judged_only_if_simulated() -> None:
    once = [each for each in mesh("racks", {2: 190.0, 4: 380.0, 8: 760.0}) if each.repetition == 0]
    measured = judge(claims_by_id(["R4"])[0], RACKS, once)
    assert measured.verdict is Verdict.NOT_CHECKABLE
    assert measured.notes == ("A single repetition has no spread: a verdict needs 2 repetitions or more.",)
    simulated = [dataclasses.replace(each, fabric="virtual", interconnect="roce-25g-lag") for each in once]
    info = dataclasses.replace(RACKS, fabric="virtual")
    assert judge(claims_by_id(["R4"])[0], info, simulated).verdict is Verdict.REPRODUCED


@pytest.mark.parametrize(
    ("at_16", "narrow_at_16", "verdict"),
    [
        (1400.0, 700.0, Verdict.REPRODUCED),
        (1000.0, 700.0, Verdict.CONTRADICTED),
        # Uplinks that do not matter contradict the other half of the claim.
        (1400.0, 1400.0, Verdict.CONTRADICTED),
    ],
)
def test_a_mesh_is_linear_until_the_switches_are_the_bottleneck(
    at_16: float, narrow_at_16: float, verdict: Verdict
) -> None:
    samples = mesh("racks", {2: 190.0, 8: 760.0, 16: at_16}) + mesh("narrow-spine", {2: 190.0, 16: narrow_at_16})
    assert judge(claims_by_id(["R5"])[0], RACKS, samples).verdict is verdict


def test_a_mesh_that_was_not_measured_to_the_end_is_not_judged() -> None:
    claim = claims_by_id(["R5"])[0]
    assert judge(claim, RACKS, mesh("racks", {2: 190.0, 4: 380.0, 8: 760.0})).verdict is Verdict.NOT_CHECKABLE
    assert "holds no mesh samples" in judge(claim, RACKS, []).summary


def test_the_figures_of_the_source_name_the_links_of_its_studies() -> None:
    every = figures_of(claims_by_id(["R1"]))
    names = ["figure-5", "figure-7", "figure-9", "figure-10"]
    simulated = [f"{name}-simulated" for name in names[:-1]]
    assert sorted(figure.id for figure in every) == sorted([*names, *simulated])
    found = [figure for figure in every if figure.id in names]
    assert {line.link for figure in found for line in figure.series} == {
        *("cable-25", "cable-10", "shallow-25", "shallow-10"),
        *("racks", "server-25"),
    }
