"""Claims about simulated networks: values as the source gives them bear them out, and others contradict them."""

from __future__ import annotations

from typing import Any, Final

import pytest

from rocelab.claims import Verdict
from rocelab.claims.tests.simulated import series, verdict_of
from rocelab.results import Sample

SIZES: Final = [1 << bit for bit in range(23)]
NAMES: Final = {"qdr": "infiniband-qdr", "fdr": "infiniband-fdr", "r10": "roce-10g", "r40": "roce-40g"}
FIGURE_2: Final = {
    "qdr_us": 1.1, "fdr_us": 0.9, "r10_us": 1.7, "r40_us": 1.3,
    "qdr_mbps": 26_000.0, "fdr_mbps": 47_600.0, "r10_mbps": 9_000.0, "r40_mbps": 34_500.0,
}  # fmt: skip
FIGURE_3: Final = {
    "qdr_us": 1.5, "fdr_us": 1.05, "r10_us": 2.73, "r40_us": 1.5,
    "qdr_mbps": 26_000.0, "fdr_mbps": 52_000.0, "r10_mbps": 9_000.0, "r40_mbps": 36_000.0,
}  # fmt: skip
COLLECTIVES: Final = {"qdr": 100.0, "fdr": 59.0, "r40": 65.5, "r10": 234.0}
LANL: Final = {
    "infiniband-qdr_us": 1.5, "roce-10g_us": 2.0, "tcp-10g_us": 11.4,
    "infiniband-qdr_gbs": 3.0, "roce-10g_gbs": 1.2, "tcp-10g_gbs": 0.324, "urxe-10g_gbs": 1.15,
    "infiniband-qdr_both_gbs": 5.5, "roce-10g_both_gbs": 2.3,
}  # fmt: skip


def two_nodes(level: str, changed: dict[str, float]) -> list[Sample]:
    """Latency and bandwidth of the four networks, of which one may be another."""
    made = []
    values = (FIGURE_2 if level == "network" else FIGURE_3) | changed
    of: dict[str, Any] = {"level": level, "link": "sx6036", "variant": "send" if level == "network" else "smpi"}
    for short, interconnect in NAMES.items():
        base_us, peak_mbps = values[f"{short}_us"], values[f"{short}_mbps"]
        # Beyond what is sent at once, the latency is that of the bandwidth.
        times = {
            size: base_us * (1 + size / 2000) if size <= 8192 else 10 * base_us + 8 * size / peak_mbps for size in SIZES
        }
        rates = {size: min(peak_mbps, 30.0 * size) for size in SIZES}
        made += series(times, **of, interconnect=interconnect, test="latency", metric="latency_us")
        test = "bandwidth" if level == "network" else "bw"
        made += series(rates, **of, interconnect=interconnect, test=test, metric="bandwidth_mbps")
    return made


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("V1", {"fdr_mbps": 50_000.0}),
        ("V1", {"fdr_us": 1.2}),
        ("V2", {"r40_mbps": 40_000.0}),
        ("V2", {"r40_us": 0.8}),
        ("V4", {"qdr_us": 1.4}),
        ("V4", {"r10_us": 0.8}),
        ("V5", {"r40_mbps": 25_000.0}),
        # As good is not better, and what two measurements of one network differ by is as good.
        ("V1", {"fdr_us": 1.1}),
        ("V2", {"r40_us": 0.9}),
        ("V4", {"qdr_us": 0.9}),
        ("V4", {"r40_us": 1.1}),
        ("V4", {"r40_us": 1.12}),
        ("V5", {"r40_mbps": 26_000.0}),
        ("V5", {"r40_mbps": 26_500.0}),
    ],
)
def test_figure_2_bears_out_the_network_level_and_another_network_does_not(
    claim: str, changed: dict[str, float]
) -> None:
    assert verdict_of(claim, two_nodes("network", {})).verdict is Verdict.REPRODUCED
    assert verdict_of(claim, two_nodes("network", changed)).verdict is Verdict.CONTRADICTED


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("V6", {"qdr_us": 1.1}),
        ("V6", {"r40_us": 2.4}),
        ("V7", {"r10_us": 1.8}),
        ("V7", {"r10_us": 4.0}),
        ("V8", {"fdr_mbps": 40_000.0}),
        ("V8", {"r10_mbps": 12_000.0}),
    ],
)
def test_figure_3_bears_out_mpi_between_two_and_another_network_does_not(claim: str, changed: dict[str, float]) -> None:
    assert verdict_of(claim, two_nodes("mpi", {})).verdict is Verdict.REPRODUCED
    assert verdict_of(claim, two_nodes("mpi", changed)).verdict is Verdict.CONTRADICTED


def collectives(changed: dict[str, float]) -> list[Sample]:
    made = []
    for test in ("scatter", "alltoallv"):
        for short, interconnect in NAMES.items():
            factor = changed.get(f"{test}_{short}", COLLECTIVES[short])
            of: dict[str, Any] = {"level": "mpi", "link": "sx6036", "variant": "smpi", "nodes": 4, "ranks": 64}
            times = {size: factor * (1 + size / 1000) for size in SIZES}
            made += series(times, **of, interconnect=interconnect, test=test, metric="latency_us")
    return made


@pytest.mark.parametrize(
    "changed", [{"scatter_qdr": 70.0}, {"alltoallv_r40": 90.0, "alltoallv_r10": 320.0}, {"alltoallv_r10": 120.0}]
)
def test_each_collective_has_the_gains_of_the_source(changed: dict[str, float]) -> None:
    assert verdict_of("V9", collectives({})).verdict is Verdict.REPRODUCED
    assert verdict_of("V9", collectives(changed)).verdict is Verdict.CONTRADICTED


def lanl(changed: dict[str, float]) -> list[Sample]:
    """Base latencies in us, and peaks one way and both ways in GB/s."""
    made = []
    values = LANL | changed
    of: dict[str, Any] = {"level": "mpi", "link": "cable", "variant": "mpi"}
    for interconnect in ("infiniband-qdr", "roce-10g", "tcp-10g", "urxe-10g"):
        what: dict[str, Any] = of | {"interconnect": interconnect}
        if base_us := values.get(f"{interconnect}_us"):
            times = {size: base_us + size / 1000 for size in SIZES}
            made += series(times, **what, test="latency", metric="latency_us")
        for test, name in (("bw", "gbs"), ("bibw", "both_gbs")):
            if peak := values.get(f"{interconnect}_{name}"):
                rates = {size: min(8000 * peak, 30.0 * size) for size in SIZES}
                made += series(rates, **what, test=test, metric="bandwidth_mbps")
    return made


@pytest.mark.parametrize(
    ("claim", "changed"),
    [
        ("L1", {"tcp-10g_us": 16.0}),
        ("L1", {"tcp-10g_gbs": 0.5}),
        ("L3", {"infiniband-qdr_gbs": 2.5}),
        ("L3", {"roce-10g_gbs": 0.9}),
        ("L3", {"infiniband-qdr_both_gbs": 6.5}),
        ("L3", {"roce-10g_both_gbs": 1.8}),
        ("L4", {"urxe-10g_gbs": 0.7}),
        ("L4", {"urxe-10g_gbs": 1.6}),
    ],
)
def test_the_slides_bear_out_what_they_say_and_other_peaks_do_not(claim: str, changed: dict[str, float]) -> None:
    assert verdict_of(claim, lanl({})).verdict is Verdict.REPRODUCED
    assert verdict_of(claim, lanl(changed)).verdict is Verdict.CONTRADICTED
