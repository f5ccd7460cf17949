"""Simulations with values that are drawn from what profiles assume."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab.claims.tests.simulated import VIRTUAL
from rocelab.drawn import DrawStore
from rocelab.profiles.drawing import AssumedName, draws
from rocelab.results import RunStore
from rocelab.virtual.draws import Chosen, DrawRunner, used
from rocelab.virtual.loading import parse
from rocelab.virtual.simulator import simulator
from rocelab.virtual.steps import plan

STUDY = """
schema = 1
id = "small"
title = "Small"
description = "Two sizes over a cable."
claims = []

[fabric]
kind = "virtual"
host = "nehalem-ep"

[[link]]
id = "cable"
topology = "back-to-back"

[[test]]
test = "latency"
sizes_bytes = [2, 4096]

[test.variants]
roce-10g = ["send"]

[[test]]
test = "bandwidth"
sizes_bytes = [4096]

[test.variants]
roce-10g = ["send"]
"""
LATENCY = Chosen(frozenset({("network", "latency")}), with_mpi=False)
POSTED = AssumedName("hosts", "nehalem-ep", "posted_ns")


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    return RunStore.create(tmp_path, VIRTUAL, STUDY)


def simulated(
    run: RunStore, values: list[dict[AssumedName, float]], stop_after: int | None = None
) -> list[list[float]]:
    """Latencies by draw; and what is interrupted after a number of steps is gone on with."""
    store = DrawStore(run.path)
    study = parse(STUDY, "study.toml")
    runner = DrawRunner(run, store, {})
    ended: list[str | None] = []

    def end(error: str | None) -> None:
        ended.append(error)
        if len(ended) == stop_after:
            raise KeyboardInterrupt

    if stop_after is not None:
        with pytest.raises(KeyboardInterrupt):
            runner.run(study, LATENCY, values, end)
        left = sum(2 for _ in values) - len(ended)
        ended.clear()
        stop_after = None
        assert runner.run(study, LATENCY, values, end) == 0
        assert len(ended) == left
    else:
        assert runner.run(study, LATENCY, values, end) == 0
    read = store.read()
    assert read is not None
    return [[each.value or 0.0 for each in found if each.metric == "latency_us"] for found in read.samples.values()]


def test_a_drawn_value_changes_what_is_simulated_by_what_it_is(run: RunStore) -> None:
    values = [{POSTED: 50.0}, {POSTED: 200.0}]
    DrawStore(run.path).begin([{str(name): value for name, value in draw.items()} for draw in values])
    low, high = simulated(run, values)
    # A doorbell and a completion on the way of a message.
    assert [slow - fast for fast, slow in zip(low, high, strict=True)] == pytest.approx([0.3, 0.3], abs=0.01)


def test_what_was_interrupted_goes_on_and_gives_the_same(run: RunStore, tmp_path: Path) -> None:
    made = [dict(draw) for draw in draws(used(plan(parse(STUDY, "study.toml"))), 3, 1)]
    other = RunStore.create(tmp_path / "other", VIRTUAL, STUDY)
    for each in (run, other):
        DrawStore(each.path).begin([{str(name): value for name, value in draw.items()} for draw in made])
    assert simulated(run, made, stop_after=3) == simulated(other, made)
    assert len({tuple(each) for each in simulated(run, made)}) == 3


def test_only_what_claims_are_about_is_drawn_and_mpi_programs_if_asked_for() -> None:
    studies = Path(__file__).resolve().parents[3] / "studies"
    steps = plan(parse((studies / "vienne2012.toml").read_text(encoding="utf-8"), "vienne2012.toml"))
    tests = frozenset({("network", "latency"), ("nas", "ft.C")})
    drawn, left_out = Chosen(tests, with_mpi=False).of(steps)
    assert {step.test_name for step in drawn} == {"latency"}
    assert {step.test_name for step in left_out} == {"ft.C"}
    assert {step.test_name for step in Chosen(tests, with_mpi=True).of(steps)[0]} == {"latency", "ft.C"}


def test_all_profiles_of_a_study_are_used() -> None:
    assert used(plan(parse(STUDY, "study.toml"))) == {
        ("hosts", "nehalem-ep"),
        ("adapters", "roce-10g"),
        ("stacks", "verbs"),
    }
