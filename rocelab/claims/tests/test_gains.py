"""Rules about systems: gains from one link over another, and sorts."""

from __future__ import annotations

import dataclasses
from typing import Any

from rocelab.claims import Verdict, claims_by_id, judge
from rocelab.claims.model import Claim
from rocelab.claims.tests.test_claims import INFO, repeated, sample
from rocelab.results import LinkInfo, RunInfo, Sample

LINKS = {"ipoib-fdr": 114.0, "ipoib-qdr": 102.0, "sockets-40gige": 99.0, "sockets-10gige": 74.0}
CLOUD: dict[str, Any] = {"level": "cloud", "interconnect": "tcp", "nodes": 4, "ranks": 3}
SORT = {"teragen_s": 5.0, "terasort_s": 20.0, "teravalidate_s": 2.0}


def claim(name: str) -> Claim:
    return claims_by_id([name])[0]


def info(*links: LinkInfo) -> RunInfo:
    return RunInfo(**{name: getattr(INFO, name) for name in INFO.__dataclass_fields__} | {"links": links})


def writes(speeds: dict[str, float], largest: float = 0.9, noise: float = 0.01) -> list[Sample]:
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


def sorts(mean_mbps: float, peak_mbps: float = 500.0, **changes: Any) -> list[Sample]:
    common = {**CLOUD, "link": "server-25", "test": "terasort", "size_bytes": 128_000_000} | changes
    made = []
    for interconnect, variant in (("soft-roce", "ucx"), ("tcp", "ucx"), ("tcp", "netty")):
        of = common | {"interconnect": interconnect, "variant": variant}
        for name, value in SORT.items():
            made += repeated(value, **of, metric=name, unit="s", statistic="total")
        for statistic, value in (("mean", mean_mbps), ("max", peak_mbps)):
            made += repeated(value, **of, metric="node_throughput_mbps", statistic=statistic)
    return made


def test_gains_as_large_as_claimed_are_reproduced() -> None:
    judged = judge(claim("V13"), INFO, writes(LINKS))
    assert judged.verdict is Verdict.REPRODUCED
    assert "IPoIB FDR over QDR: +12 (+9 to +14) %" in judged.summary
    assert "claimed +31 %: reproduced" in judged.summary


def test_only_a_gain_that_is_clearly_not_there_contradicts() -> None:
    assert judge(claim("V13"), INFO, writes(LINKS | {"ipoib-qdr": 114.0})).verdict is Verdict.CONTRADICTED
    noisy = judge(claim("V13"), INFO, writes(LINKS | {"ipoib-qdr": 112.0}, noise=0.2))
    assert noisy.verdict is Verdict.NOT_CHECKABLE
    assert "undecided" in noisy.summary


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


def test_sorts_that_leave_the_link_alone_are_as_claimed() -> None:
    run = info(LinkInfo("server-25", "bridge", 4200, 2500.0))
    judged = judge(claim("R7"), run, sorts(100.0))
    assert judged.verdict is Verdict.REPRODUCED
    assert "Soft RoCE: 3 sorts of 125000 KiB in 27 (26 to 28) s" in judged.summary
    assert judge(claim("R7"), run, sorts(400.0)).verdict is Verdict.CONTRADICTED
    assert judge(claim("R7"), run, sorts(100.0, peak_mbps=3000.0)).verdict is Verdict.CONTRADICTED


def test_a_wrong_sort_contradicts_a_missing_transport_is_open() -> None:
    run = info(LinkInfo("server-25", "bridge", 4200, 2500.0))
    wrong = [*sorts(100.0), sample(None, **CLOUD, link="server-25", test="terasort", variant="netty", repetition=1)]
    assert judge(claim("R7"), run, wrong).verdict is Verdict.CONTRADICTED
    missing = [each for each in sorts(100.0) if each.interconnect == "tcp"]
    assert judge(claim("R7"), run, missing).verdict is Verdict.NOT_CHECKABLE
