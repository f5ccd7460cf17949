"""The tables of claims in the documents: every claim, with its verdicts where a run is kept."""

from __future__ import annotations

import dataclasses

import pytest

from rocelab.claims import Verdict, all_claims
from rocelab.claims.tests.test_claims import INFO
from rocelab.claims.tests.test_mpi_level import nas
from rocelab.claims.tests.test_simulated_claims import lanl, two_nodes
from rocelab.drawn import DrawnSamples
from rocelab.report import claim_tables
from rocelab.report.model import RunModel
from rocelab.report.tests.test_improvements import emulated, simulated
from rocelab.results import LinkInfo

KEPT = RunModel(dataclasses.replace(INFO, fabric="virtual", claims=("V11",)), nas(lu_roce_10g=24.07))


@pytest.mark.parametrize("source", sorted({claim.source.id for claim in all_claims()}))
def test_every_claim_of_a_source_has_a_row_in_both_tables(source: str) -> None:
    ids = [claim.id for claim in all_claims() if claim.source.id == source]
    for made in (claim_tables.claims(source, []), claim_tables.rules(source, [])):
        rows = made.split("\n")[2:]
        assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == ids
        assert all(row.count(" | ") == made.split("\n")[0].count(" | ") for row in rows)


def test_a_verdict_is_that_of_a_run_that_is_kept_or_none() -> None:
    rows = {row.split(" | ")[0]: row for row in claim_tables.claims("vienne2012", [KEPT]).split("\n")}
    assert rows["| V11"].endswith("| contradicted (simulated) |")
    assert rows["| V12"].endswith("| no run is kept; each run judges it |")


def test_what_no_run_can_judge_alone_is_judged_on_those_made_for_it_together() -> None:
    links = tuple(LinkInfo(link, "bridge", 9000) for link in ("ipoib-fdr", "ipoib-qdr", "sockets-40gige"))
    one = RunModel(dataclasses.replace(INFO, fabric="virtual", claims=("V15",), links=()), simulated())
    info = dataclasses.replace(INFO, id="other", study="vienne2012-cloud", claims=("V13", "V15"), links=links)
    rows = {
        row.split(" | ")[0]: row
        for row in claim_tables.claims("vienne2012", [one, RunModel(info, emulated())]).split("\n")
    }
    assert rows["| V15"].endswith("| reproduced (simulated and measured, vienne2012-cloud) |")
    assert "(simulated" not in rows["| V13"]


def test_what_changed_is_held_against_the_rules_of_now() -> None:
    made = claim_tables.changes("claim,before,why\nV11,reproduced,a reason\n", [KEPT])
    assert made.endswith("| V11 | reproduced | contradicted | a reason |")


def test_a_column_is_held_against_the_one_that_sets_the_processors() -> None:
    samples = [dataclasses.replace(each, params={"calibrated_on": "roce-40g"}) for each in nas(lu_roce_10g=24.07)]
    made = claim_tables.columns(RunModel(KEPT.info, samples))
    (row,) = (row for row in made.split("\n") if row.startswith("| LU"))
    assert row.endswith("| 24.07: +0.1 %, source +1.9 % | 24.05, calibrated |")


def test_what_was_put_in_is_no_evidence_and_said_to_be_so() -> None:
    info = dataclasses.replace(KEPT.info, claims=("V2",))
    model = RunModel(info, two_nodes("network", {}))
    (judged,) = model.judgements
    assert judged.verdict_words == "reproduced"
    given = judged.claim.model_copy(update={"by_construction": "it was put in"})
    assert dataclasses.replace(judged, claim=given).verdict_words == "reproduced by construction"
    against = dataclasses.replace(judged, claim=given, verdict=Verdict.CONTRADICTED)
    assert against.verdict_words == "contradicted"
    assert "By construction, where it holds: How much a queue" in claim_tables.rules("li2019", [])


def test_an_unknown_source_is_named_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match=r"there is no source 'nosuch'; there are calibration, lanl2010"):
        claim_tables.claims("nosuch", [])


def test_draws_of_a_run_stand_with_the_verdict_before_and_after_them() -> None:
    samples = [*two_nodes("network", {}), *lanl({})]
    fewer = [dataclasses.replace(each, value=1.0) if each.interconnect == "roce-40g" else each for each in samples]
    info = dataclasses.replace(KEPT.info, claims=("V2", "L4", "V11"))
    model = RunModel(info, [*samples, *KEPT.samples], DrawnSamples(2, {0: samples, 1: fewer}))
    rows = claim_tables.draws(model).split("\n")
    assert rows[2] == "| V2 | reproduced | 1 of 2 | not checkable here | fails |"
    assert rows[3] == "| L4 | reproduced | 2 of 2 | reproduced | passes |"
    assert rows[4] == "| V11 | contradicted | not drawn | contradicted | fails |"
    assert rows[-1] == "A null model, all networks alike, passes 1 of 3 claims."
    verdicts = {row.split(" | ")[0]: row for row in claim_tables.claims("vienne2012", [model]).split("\n")}
    assert verdicts["| V2"].endswith("| not checkable here (simulated; holds in 1 of 2 draws) |")
    assert verdicts["| V11"].endswith("| contradicted (simulated) |")
