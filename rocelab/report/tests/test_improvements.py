"""Figure 9 of the FDR paper: one chart of all levels, from the runs that have them."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from rocelab.claims import Verdict, claims_by_id, judge
from rocelab.claims.tests.test_claims import INFO
from rocelab.claims.tests.test_gains import LINKS, hbase, writes
from rocelab.claims.tests.test_mpi_level import nas
from rocelab.claims.tests.test_simulated_claims import collectives, two_nodes
from rocelab.report import improvements
from rocelab.report.model import RunModel
from rocelab.results import LinkInfo, RunStore, Sample

PAIRS = ("FDR over QDR", "FDR over 40GigE", "40GigE over 10GigE")
LEVELS = ("Network", "MPI, two processes", "MPI, collectives", "NAS", "HDFS write", "HBase mix")


def simulated() -> list[Sample]:
    return [*two_nodes("network", {}), *two_nodes("mpi", {}), *collectives({}), *nas()]


def emulated() -> list[Sample]:
    return [*writes(LINKS), *hbase()]


def model(samples: list[Sample]) -> RunModel:
    return RunModel(dataclasses.replace(INFO, fabric="virtual", claims=("V15",)), samples)


def points(samples: list[Sample]) -> dict[tuple[str, str], dict[str, Any]]:
    (section,) = improvements.sections(model(samples))
    ((_, (figure,)),) = section.links
    drawn: list[dict[str, Any]] = figure.spec["datasets"]["points"]
    return {(point["level"], point["pair"]): point for point in drawn}


def test_all_levels_are_in_one_chart_with_what_the_source_says() -> None:
    found = points([*simulated(), *emulated()])
    assert list(found) == [(level, pair) for level in LEVELS for pair in PAIRS]
    assert all(point["here"] is not None for point in found.values())
    # A ratio of 1.83 is 83 % better, and a time that is 20 % less is 20 % better.
    network, applications = found["Network", "FDR over QDR"], found["NAS", "FDR over QDR"]
    assert (round(network["here"]), network["source"]) == (83, 83)
    assert (round(applications["here"]), applications["source"]) == (20, 20)
    assert (round(found["HBase mix", "FDR over 40GigE"]["here"]), found["HDFS write", PAIRS[0]]["source"]) == (25, 11)


def test_the_larger_of_two_collectives_counts() -> None:
    slower = [
        dataclasses.replace(each, value=(each.value or 0.0) / 2)
        if (each.test, each.interconnect) == ("scatter", "infiniband-fdr")
        else each
        for each in simulated()
    ]
    assert points(slower)["MPI, collectives", "FDR over QDR"]["here"] > 60


def test_a_level_that_no_run_has_keeps_the_mark_of_its_source() -> None:
    found = points(simulated())
    missing = found["HDFS write", "FDR over QDR"]
    assert (missing["here"], missing["source"], missing["words"]) == (None, 11, "not in these runs")


def test_a_run_with_none_of_the_levels_has_no_such_chart() -> None:
    assert improvements.sections(model([])) == []


def test_what_sums_the_source_up_is_judged_on_both_runs_together() -> None:
    (v15,) = claims_by_id(["V15"])
    info = dataclasses.replace(INFO, fabric="virtual")
    assert judge(v15, info, simulated()).verdict is Verdict.NOT_CHECKABLE
    assert judge(v15, info, [*simulated(), *emulated()]).verdict is Verdict.REPRODUCED
    ahead = [*simulated(), *writes(LINKS | {"ipoib-qdr": 90.0}), *hbase()]
    assert judge(v15, info, ahead).verdict is Verdict.CONTRADICTED
    slow = [*nas(is_roce_40g=0.9), *two_nodes("network", {}), *emulated()]
    assert judge(v15, info, slow).verdict is Verdict.CONTRADICTED


def test_two_runs_in_one_report_have_the_links_of_both(tmp_path: Path) -> None:
    links = tuple(LinkInfo(link, "bridge", 9000, mbps) for link, mbps in (("ipoib-fdr", 5400.0), ("ipoib-qdr", 3200.0)))
    stores = []
    for name, info, samples in (
        ("simulated", dataclasses.replace(INFO, fabric="virtual", claims=("V15",), links=()), simulated()),
        ("emulated", dataclasses.replace(INFO, id="other", links=links), emulated()),
    ):
        store = RunStore.create(tmp_path / name, info, "")
        store.append(*samples)
        stores.append(store)
    both = RunModel.of(stores[0], stores[1])
    (judged,) = both.judgements
    assert judged.verdict is Verdict.REPRODUCED
    assert "rate of IPoIB FDR: 5.4 of 54 Gbps" in judged.scaled
