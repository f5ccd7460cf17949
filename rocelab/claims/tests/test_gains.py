"""Rules about systems: gains from one link over another, and sorts."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rocelab.claims import Verdict, claims_by_id, judge
from rocelab.claims.model import Claim
from rocelab.claims.tests.test_claims import INFO, repeated, sample
from rocelab.results import Sample

LINKS = {"ipoib-fdr": 114.0, "ipoib-qdr": 102.0, "sockets-40gige": 99.0, "sockets-10gige": 74.0}
CLOUD: dict[str, Any] = {"level": "cloud", "interconnect": "tcp", "nodes": 4, "ranks": 3}


def claim(name: str) -> Claim:
    return claims_by_id([name])[0]


def writes(speeds: dict[str, float], largest: float = 0.9, noise: float = 0.003) -> list[Sample]:
    return [
        sample(
            speed * part * (1 + noise * repetition),
            **CLOUD,
            link=link,
            test="testdfsio",
            variant="sockets",
            metric="write_mib_per_s",
            unit="MiB/s",
            size_bytes=size,
            repetition=repetition,
        )
        for link, speed in speeds.items()
        for size, part in ((1 << 26, 1.0), (1 << 28, largest))
        for repetition in range(3)
    ]


def hbase(**changed: float) -> list[Sample]:
    """YCSB as the source has it: what each link does in each workload, but for what is named as `mix_ipoib_fdr`."""
    throughput = {
        "mix": {"sockets-10gige": 98.0, "sockets-40gige": 100.0, "ipoib-qdr": 114.7, "ipoib-fdr": 125.0},
        "put": {"sockets-10gige": 98.0, "sockets-40gige": 100.0, "ipoib-qdr": 114.7, "ipoib-fdr": 125.0},
    }
    latency = {
        ("mix", "read"): {"sockets-10gige": 104.2, "sockets-40gige": 100.0, "ipoib-qdr": 90.0, "ipoib-fdr": 84.6},
        ("mix", "update"): {"sockets-10gige": 101.0, "sockets-40gige": 100.0, "ipoib-qdr": 90.0, "ipoib-fdr": 84.6},
        ("put", "update"): {"sockets-10gige": 101.0, "sockets-40gige": 100.0, "ipoib-qdr": 95.6, "ipoib-fdr": 87.0},
    }
    made = []
    of = CLOUD | {"variant": "sockets", "size_bytes": 1000}
    for load, links in throughput.items():
        for link, value in links.items():
            what = {"test": f"ycsb-{load}", "metric": "throughput_per_s", "link": link}
            made += repeated(changed.get(f"{load}_{link.replace('-', '_')}", value), 0.001, **of, **what)
    for (load, kind), links in latency.items():
        for link, value in links.items():
            what = {"test": f"ycsb-{load}", "metric": f"{kind}_latency_us", "unit": "us", "link": link}
            made += repeated(changed.get(f"{load}_{kind}_{link.replace('-', '_')}", value), 0.001, **of, **what)
    return made


def test_gains_as_large_as_claimed_are_reproduced() -> None:
    judged = judge(claim("V13"), INFO, writes(LINKS))
    assert judged.verdict is Verdict.REPRODUCED
    assert "IPoIB FDR over QDR: +12 (+11 to +13) %" in judged.summary
    assert "claimed +31 %: reproduced" in judged.summary


@pytest.mark.parametrize(
    "changed",
    [
        {"ipoib-qdr": 114.0},
        # Far more is not what the source says either.
        {"sockets-10gige": 40.0},
        # 40GigE ahead of QDR.
        {"ipoib-qdr": 96.0, "ipoib-fdr": 112.0},
    ],
)
def test_a_gain_that_is_clearly_another_contradicts(changed: dict[str, float]) -> None:
    assert judge(claim("V13"), INFO, writes(LINKS | changed)).verdict is Verdict.CONTRADICTED


def test_a_gain_that_may_be_as_claimed_decides_nothing() -> None:
    noisy = judge(claim("V13"), INFO, writes(LINKS | {"ipoib-qdr": 112.0}, noise=0.2))
    assert noisy.verdict is Verdict.NOT_CHECKABLE
    assert "undecided" in noisy.summary


@pytest.mark.parametrize("link", LINKS)
def test_every_link_has_to_fall_as_files_grow(link: str) -> None:
    others = [each for each in writes(LINKS) if each.link != link]
    rising = [each for each in writes(LINKS, largest=1.1) if each.link == link]
    judged = judge(claim("V13"), INFO, others + rising)
    assert judged.verdict is Verdict.CONTRADICTED
    assert "from 64 MiB to 256 MiB: does not fall" in judged.summary


def test_hbase_gains_what_the_source_says() -> None:
    judged = judge(claim("V14"), INFO, hbase())
    assert judged.verdict is Verdict.REPRODUCED, judged.summary
    assert "mix, throughput, FDR over 40GigE: +25 (" in judged.summary
    assert "put latency, FDR below 40GigE: +13 (" in judged.summary


@pytest.mark.parametrize(
    "changed",
    [
        # 25 % over 40GigE in the mix, too; and as much over QDR as over 40GigE.
        {"mix_ipoib_fdr": 108.0, "mix_ipoib_qdr": 99.0},
        {"put_ipoib_qdr": 100.0},
        # Sockets on 40GigE gain up to 3 %, and lose nothing.
        {"mix_sockets_10gige": 90.0},
        {"put_sockets_10gige": 110.0},
        # Each latency has its gain.
        {"mix_read_sockets_10gige": 120.0},
        {"mix_update_sockets_10gige": 110.0},
        {"put_update_sockets_10gige": 110.0},
        {"put_update_sockets_40gige": 88.0, "put_update_sockets_10gige": 89.0},
        {"mix_read_ipoib_qdr": 84.0},
    ],
)
def test_each_gain_of_hbase_may_contradict(changed: dict[str, float]) -> None:
    assert judge(claim("V14"), INFO, hbase(**changed)).verdict is Verdict.CONTRADICTED


def test_a_throughput_that_rises_with_the_files_contradicts() -> None:
    assert judge(claim("V13"), INFO, writes(LINKS, largest=1.5)).verdict is Verdict.CONTRADICTED


def test_two_repetitions_that_disagree_contradict_nothing() -> None:
    samples = [each for each in writes(LINKS, largest=1.3, noise=0.6) if each.repetition < 2]
    judged = judge(claim("V13"), INFO, samples)
    assert judged.verdict is Verdict.NOT_CHECKABLE
    assert "from 64 MiB to 256 MiB: undecided" in judged.summary


def test_a_series_is_the_first_under_any_congestion_control() -> None:
    named = [dataclasses.replace(each, variant="sockets@cubic") for each in writes(LINKS)]
    assert judge(claim("V13"), INFO, named).notes == ()
    slower = [dataclasses.replace(each, variant="sockets@bbr") for each in writes(dict.fromkeys(LINKS, 50.0))]
    judged = judge(claim("V13"), INFO, named + slower)
    assert judged.verdict is Verdict.REPRODUCED
    assert "IPoIB (FDR) is sockets@cubic, which was measured first; the run has sockets@bbr too." in judged.notes


def test_a_link_that_was_not_measured_leaves_the_claim_open() -> None:
    judged = judge(claim("V13"), INFO, writes({"ipoib-fdr": 114.0}))
    assert judged.verdict is Verdict.NOT_CHECKABLE
    assert "no testdfsio samples of IPoIB (QDR) on the link 'ipoib-qdr'" in judged.summary
