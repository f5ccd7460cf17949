"""``rocelab draws``."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.claims.tests.simulated import VIRTUAL
from rocelab.cli.app import app
from rocelab.drawn import DrawnSamples, DrawStore
from rocelab.results import RunStore
from rocelab.virtual.simulator import simulator

STUDIES = Path(__file__).resolve().parents[3] / "studies"
#: Figure 2 of vienne2012, at two sizes; V6 is about an MPI program.
STUDY = """
schema = 1
id = "small"
title = "Small"
description = "Two sizes through a switch."
claims = ["V2", "V6"]

[fabric]
kind = "virtual"
host = "sandy-bridge-ep"

[[link]]
id = "sx6036"
topology = "one-switch"
switches = ["sx6036-infiniband", "sx6036-ethernet"]

[[test]]
test = "latency"
sizes_bytes = [2, 4096]

[test.variants]
infiniband-fdr = ["send"]
roce-40g = ["send"]

[[test]]
level = "mpi"
mpi = "mvapich2-1.8"
test = "latency"
sizes_bytes = [2]

[test.variants]
infiniband-fdr = ["smpi"]
"""


def run_of(results: Path, study: str = STUDY, claims: tuple[str, ...] = ("V2", "V6")) -> RunStore:
    return RunStore.create(results, dataclasses.replace(VIRTUAL, id="run", claims=claims), study)


def said(results: Path, *options: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["draws", "run", "--results", str(results), "--no-report", *options])
    return done.exit_code, " ".join(done.output.split())


def read(store: RunStore) -> DrawnSamples:
    found = DrawStore(store.path).read()
    assert found is not None
    return found


def test_draws_are_kept_in_the_run_and_what_is_left_out_is_said(tmp_path: Path) -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    store = run_of(tmp_path)
    status, words = said(tmp_path, "--draws", "3")
    assert status == 0, words
    assert "Left out: 1 MPI job in each draw (mpi latency); --mpi takes them in." in words
    before = read(store)
    assert [len({each.key for each in found}) for found in before.samples.values()] == [4, 4, 4]
    assert len({each.value for found in before.samples.values() for each in found if each.metric == "latency_us"}) == 12
    # What is there is not simulated again.
    assert said(tmp_path)[0] == 0
    assert read(store) == before


def test_a_run_that_is_kept_without_logs_can_be_drawn(tmp_path: Path) -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    store = run_of(tmp_path)
    store.logs.rmdir()
    assert said(tmp_path, "--draws", "2")[0] == 0
    assert len(read(store).samples) == 2


def test_other_draws_than_those_begun_are_refused_until_they_are_deleted(tmp_path: Path) -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    store = run_of(tmp_path)
    assert said(tmp_path, "--draws", "2")[0] == 0
    status, words = said(tmp_path, "--draws", "3")
    assert (status, "the run has 2 draws with other values: --anew deletes them" in words) == (1, True), words
    assert read(store).count == 2
    assert said(tmp_path, "--draws", "3", "--anew")[0] == 0
    assert read(store).count == 3


@pytest.mark.parametrize(
    ("study", "claims", "options", "words"),
    [
        (STUDY, (), (), "study small has no claims"),
        (STUDY, ("V6",), (), "nothing that V6 is about is left in small"),
        (STUDY, ("V2",), ("--claims", "V99"), "no claim has the id 'V99'"),
        ((STUDIES / "quick.toml").read_text(encoding="utf-8"), ("S1",), (), "was not simulated from profiles"),
    ],
)
def test_where_nothing_can_be_drawn_the_reason_is_said(
    tmp_path: Path, study: str, claims: tuple[str, ...], options: tuple[str, ...], words: str
) -> None:
    run_of(tmp_path, study, claims)
    status, output = said(tmp_path, *options)
    assert (status, words in output) == (1, True), output
