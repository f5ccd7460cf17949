"""The simulated half of the full-mesh paper: what bears a claim out, and what speaks against it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from rocelab.claims import Verdict
from rocelab.claims.tests.simulated import VIRTUAL, series, verdict_of
from rocelab.results import LinkInfo, Sample

SIZES = [1 << bit for bit in range(21)]
PINGPONG: dict[str, Any] = {"level": "mpi", "test": "latency"}
PORTS = {25: ("roce-25g", "roce-25g-lag"), 10: ("roce-10g-lx", "roce-10g-lag")}
Speed = Callable[[int], float]


def cable(rate: int) -> Speed:
    """Mbps of a ping-pong over a cable."""
    return lambda size: size * 8 / (2 + size * 8 / (1000 * rate))


def times(rate: int, up_to_5_kb: float, above: float) -> Speed:
    """So many times that."""
    return lambda size: cable(rate)(size) * (up_to_5_kb if size <= 5120 else above)


def pingpong(link: str, interconnect: str, speed: Speed, lost: Callable[[int], int] | None = None) -> list[Sample]:
    of = PINGPONG | {"link": link, "interconnect": interconnect, "variant": "mpi" if lost is None else "mpi-2-rails"}
    made = series(lambda size: size * 8 / speed(size), SIZES, metric="latency_us", unit="us", **of)
    return made + ([] if lost is None else series(lost, SIZES, metric="dropped_packets", unit="packets", **of))


def above_5_kb(size: int) -> int:
    return 3 if size > 5120 else 0


def through(
    *,
    at_10: tuple[float, float] = (0.9, 0.3),
    lost: Callable[[int], int] = above_5_kb,
    pfc: tuple[float, float] = (0.7, 0.9),
    pfc_lost: Callable[[int], int] = lambda _: 0,
) -> list[Sample]:
    """Over a cable, and through a switch without and with flow control: parts of the cable's bandwidth."""
    made = []
    for rate, (one, both) in PORTS.items():
        made += pingpong("cable", one, cable(rate))
        made += pingpong("switch-no-pfc", both, times(rate, *(at_10 if rate == 10 else (0.9, 0.3))), lost)
        made += pingpong("switch-pfc", both, times(rate, *pfc), pfc_lost)
    return made


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.REPRODUCED),
        # One rate alone is half of what the source says.
        ({"at_10": (0.9, 0.9)}, Verdict.CONTRADICTED),
        # Slow, but of something else than a buffer that overflows.
        ({"lost": lambda _: 0}, Verdict.CONTRADICTED),
    ],
)
def test_degradation_is_of_both_rates_and_comes_with_losses(changed: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_of("R2", through(**changed)).verdict is verdict


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ({}, Verdict.REPRODUCED),
        ({"pfc_lost": lambda size: int(size == 1 << 20)}, Verdict.CONTRADICTED),
        # Nothing is lost without it either, so that it does nothing.
        ({"lost": lambda _: 0}, Verdict.CONTRADICTED),
        # Pauses may cost as much as losses.
        ({"pfc": (0.9, 0.7)}, Verdict.CONTRADICTED),
        ({"pfc": (0.9, 0.85), "at_10": (0.9, 0.8)}, Verdict.CONTRADICTED),
    ],
)
def test_flow_control_keeps_what_is_lost_without(changed: dict[str, Any], verdict: Verdict) -> None:
    assert verdict_of("R3", through(**changed)).verdict is verdict


def test_a_bandwidth_that_falls_in_spite_of_flow_control_contradicts() -> None:
    def with_a_dip(rate: int) -> Speed:
        return lambda size: cable(rate)(size) * (0.2 if size == 2048 else 0.9)

    dip = [
        each
        for rate, (_, both) in PORTS.items()
        for each in pingpong("switch-pfc", both, with_a_dip(rate), lambda _: 0)
    ]
    others = [each for each in through() if each.link != "switch-pfc"]
    found = verdict_of("R3", others + dip)
    assert found.verdict is Verdict.CONTRADICTED
    assert "more than 10 % below a smaller size at 2 KiB" in found.summary


@pytest.mark.parametrize(
    ("per_server", "verdict"),
    [(23.1, Verdict.REPRODUCED), (20.0, Verdict.CONTRADICTED), (45.0, Verdict.CONTRADICTED)],
)
def test_alltoall_fills_one_port_and_not_two(per_server: float, verdict: Verdict) -> None:
    of: dict[str, Any] = {
        "level": "mpi",
        "test": "mesh",
        "metric": "bandwidth_mbps",
        "link": "racks",
        "variant": "mpi-rdmacm",
    }
    samples = [
        each
        for nodes in (2, 4, 8, 16)
        for each in series({4 << 20: 1000 * per_server * nodes}, interconnect="roce-25g-lag", nodes=nodes, **of)
    ]
    assert verdict_of("R6", samples).verdict is verdict


def mesh(totals_gbps: dict[int, float]) -> list[Sample]:
    """What ib_write_bw moves in total with so many servers, each a series of its own."""
    of: dict[str, Any] = {"test": "mesh", "metric": "throughput_mbps", "link": "racks", "variant": "write"}
    return [
        each
        for nodes, total in totals_gbps.items()
        for each in series({65536: 1000 * total}, interconnect="roce-25g-lag", nodes=nodes, **of)
    ]


RACKS = dataclasses.replace(VIRTUAL, links=(LinkInfo("racks", "leaf-spine", 0, 50_000.0),))


@pytest.mark.parametrize(
    ("totals", "verdict"),
    [
        ({2: 92.0, 4: 184.0, 8: 368.0, 16: 650.0}, Verdict.REPRODUCED),
        # Linear, and another total than the source's.
        ({2: 60.0, 4: 120.0, 8: 240.0, 16: 480.0}, Verdict.CONTRADICTED),
        # The source's total, and a mesh of 8 that falls behind.
        ({2: 92.0, 4: 184.0, 8: 300.0, 16: 650.0}, Verdict.CONTRADICTED),
    ],
)
def test_the_simulated_mesh_is_linear_to_the_total_of_the_source(totals: dict[int, float], verdict: Verdict) -> None:
    assert verdict_of("R5", mesh(totals)).verdict is verdict


@pytest.mark.parametrize(("at_8", "verdict"), [(46.0, Verdict.REPRODUCED), (44.0, Verdict.CONTRADICTED)])
def test_every_simulated_server_of_a_rack_sends_more_than_45_gbps(at_8: float, verdict: Verdict) -> None:
    samples = mesh({2: 92.0, 4: 184.0, 8: 8 * at_8, 16: 650.0})
    assert verdict_of("R4", samples, RACKS).verdict is verdict


@pytest.mark.parametrize("at_8_mib", [1.0, 0.85])
def test_a_simulated_cable_is_steady_or_it_is_not(at_8_mib: float) -> None:
    sizes = [1 << bit for bit in range(28)]
    made = []
    for rate, (one, _) in PORTS.items():
        times_us = {size: size * 8 / cable(rate)(size) / (at_8_mib if size == 8 << 20 else 1.0) for size in sizes}
        of = PINGPONG | {"link": "cable", "interconnect": one, "variant": "mpi"}
        made += series(times_us, metric="latency_us", unit="us", **of)
    expected = Verdict.REPRODUCED if at_8_mib == 1.0 else Verdict.CONTRADICTED
    assert verdict_of("R1", made).verdict is expected
