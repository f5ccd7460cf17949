"""A run with a time budget, in virtual time: what it measures again, when it stops, and how often it is misled."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from rocelab.results import Sample
from rocelab.stats import SeriesTable
from rocelab.study.adaptive import INTERIM_P_VALUE, LOOKS_MAX, Course, cells, stand
from rocelab.study.budget import OVERRUN_MAX_S, Budget, Pace, span, turn_of
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.steps import PairStep, Step

STUDY = """\
schema = 1
id = "adaptive"
title = "A study with a budget"
repetitions = 3
[tcp]
congestion_control = ["cubic"]
[[link]]
id = "direct"
kind = "direct"
[[link]]
id = "slow"
kind = "bridge"
rate_mbps = 100
[[test]]
test = "latency"
sizes_bytes = [64, 1024]
[test.variants]
tcp = ["blocking", "busy-poll"]
soft-roce = ["send", "write"]
"""
MPI_STUDY = """\
schema = 1
id = "adaptive"
title = "A study of MPI with a budget"
repetitions = 3
[tcp]
congestion_control = ["cubic"]
[[link]]
id = "direct"
kind = "direct"
[[test]]
level = "mpi"
test = "latency"
sizes_bytes = [64, 128]
[test.variants]
tcp = ["openmpi-ob1", "openmpi-ucx"]
soft-roce = ["openmpi-ucx"]
"""
Truth = Callable[[Step, int], float]


def steps_of(text: str = STUDY) -> list[Step]:
    return plan(parse(text, "adaptive.toml"))


def same(step: Step, size_bytes: int) -> float:
    """Soft RoCE and TCP that polls are equal, TCP that sleeps is far behind."""
    return 50.0 if step.variant == "blocking@cubic" else 10.0


def ahead(step: Step, size_bytes: int) -> float:
    return 5.0 if step.interconnect == "soft-roce" else same(step, size_bytes)


@dataclass
class Machine:
    """Takes so many times as long as planned, and measures the truth with an error of so much."""

    truth: Truth
    slowness: float = 1.0
    error: float = 0.05
    seed: int = 1
    now_s: float = 0.0
    samples: list[Sample] = field(default_factory=list)
    news: list[str] = field(default_factory=list)
    cut: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def run(self, steps: Sequence[Step], budget_s: float, whole_plan: Sequence[Step] | None = None) -> None:
        course = Course(whole_plan or steps, Budget(budget_s, lambda: self.now_s), Pace(lambda: self.now_s))
        last, rest = None, steps
        while True:
            revision = course.revise(last, rest, lambda: self.samples)
            self.cut += revision.cut
            if revision.news is not None:
                self.news.append(revision.news)
            if not revision.steps:
                return
            last, rest = revision.steps[0], revision.steps[1:]
            self.now_s += last.expected_s * self.slowness
            course.pace.ended(last)
            self.samples += self.measured(last)

    def measured(self, step: Step) -> list[Sample]:
        return [
            Sample(
                study="s",
                run="r",
                fabric="f",
                **key._asdict(),
                params={},
                metric="latency_us",
                unit="us",
                statistic="median",
                value=self.truth(step, key.size_bytes or 0) * math.exp(self.random.gauss(0, self.error)),
                ok=True,
                error=None,
                tool="t",
                tool_version="1",
                command="c",
                started_at="2026-01-01T00:00:00.000Z",
                duration_s=0.1,
                log=None,
                order=len(self.samples),
            )
            for key in step.keys
        ]

    def counts(self) -> Mapping[tuple[str, int | None, str, str], int]:
        return Counter((each.link, each.size_bytes, each.interconnect, each.variant) for each in self.samples)


def total_s(steps: Sequence[Step]) -> float:
    return sum(step.expected_s for step in steps)


def test_cells_compare_soft_roce_with_tcp_waiting_alike_and_all() -> None:
    first = [cell for cell in cells(steps_of()) if cell.place.link == "direct" and cell.place.size_bytes == 64]
    assert [(cell.subject, set(cell.references)) for cell in first] == [
        ("send", {"busy-poll@cubic"}),
        ("send", {"blocking@cubic", "busy-poll@cubic"}),
    ]
    assert {(cell.metric, cell.better) for cell in first} == {("latency_us", "lower")}


def test_what_the_first_pass_made_clear_is_not_measured_again() -> None:
    machine = Machine(ahead, error=0.005)
    machine.run(steps_of(), budget_s=1000)
    assert len(machine.samples) == len(steps_of())
    assert machine.news == []


def test_what_is_unclear_is_measured_until_the_budget_is_gone() -> None:
    machine = Machine(same)
    budget_s = 3 * total_s(steps_of())
    machine.run(steps_of(), budget_s)
    assert budget_s * 0.9 < machine.now_s <= budget_s + OVERRUN_MAX_S
    counts = machine.counts()
    assert counts["direct", 64, "soft-roce", "send"] > 5
    assert "spending up to" in machine.news[0]
    assert "cells that are not clear yet" in machine.news[0]


def test_only_a_cells_contestants_are_measured_and_equally_often() -> None:
    machine = Machine(same)
    machine.run(steps_of(), 3 * total_s(steps_of()))
    counts = machine.counts()
    for link in ("direct", "slow"):
        for size_bytes in (64, 1024):
            assert counts[link, size_bytes, "soft-roce", "send"] == counts[link, size_bytes, "tcp", "busy-poll@cubic"]
            assert counts[link, size_bytes, "soft-roce", "write"] == 3, "no claim is about it"
    numbers = {each.repetition for each in machine.samples if each.variant == "send" and each.link == "direct"}
    assert numbers == set(range(max(numbers) + 1)), "repetitions are numbered on"


def test_a_reference_that_is_clearly_not_the_best_is_left_out() -> None:
    machine = Machine(same)
    machine.run(steps_of(), 3 * total_s(steps_of()))
    counts = machine.counts()
    assert counts["direct", 64, "tcp", "blocking@cubic"] < counts["direct", 64, "tcp", "busy-poll@cubic"]


def test_nearly_equal_contestants_are_not_measured_again() -> None:
    machine = Machine(same, error=0.0005)
    machine.run(steps_of(), 10_000)
    assert set(machine.counts().values()) == {3}


def test_a_contestant_that_has_no_values_is_not_waited_for() -> None:
    machine = Machine(same)
    machine.samples = [each for step in steps_of() for each in machine.measured(step) if each.interconnect == "tcp"]
    machine.run([], 100, whole_plan=steps_of())
    assert machine.now_s == 0


def test_a_resumed_run_goes_on_with_the_next_repetitions() -> None:
    machine = Machine(same)
    machine.run(steps_of(), 2 * total_s(steps_of()))
    before = max(each.repetition for each in machine.samples)
    machine.run([], total_s(steps_of()), whole_plan=steps_of())
    keys = [each.key for each in machine.samples]
    assert len(keys) == len(set(keys)), "no repetition is there twice"
    assert max(key.repetition for key in keys) > before


def test_sizes_of_an_mpi_program_share_their_starts() -> None:
    machine = Machine(lambda _step, size_bytes: 10.0 if size_bytes == 64 else 20.0)
    machine.run(steps_of(MPI_STUDY), 3 * total_s(steps_of(MPI_STUDY)))
    counts = machine.counts()
    assert counts["direct", 64, "soft-roce", "openmpi-ucx"] > 3
    assert counts["direct", 64, "soft-roce", "openmpi-ucx"] == counts["direct", 128, "soft-roce", "openmpi-ucx"]


def test_a_slower_machine_makes_fewer_repetitions_of_everything() -> None:
    machine = Machine(ahead, slowness=2.0, error=0.005)
    steps = steps_of()
    machine.run(steps, 2.0 * total_s(steps) * 0.9)
    assert set(machine.counts().values()) <= {2, 3}
    assert 2 in machine.counts().values()
    assert machine.cut == 0
    assert "the machine is slower than planned" in machine.news[0]


def test_a_first_pass_cut_short_measures_all_equally_often() -> None:
    machine = Machine(same)
    steps = steps_of()
    budget_s = 0.3 * total_s(steps)
    machine.run(steps, budget_s)
    assert machine.cut > 0
    assert machine.news[-1] == "the time budget is used up"
    assert machine.now_s <= budget_s + OVERRUN_MAX_S
    by_turn = Counter((each.link, each.repetition, each.size_bytes) for each in machine.samples)
    assert set(by_turn.values()) == {4}


def test_a_turn_much_longer_than_expected_is_broken_off() -> None:
    machine = Machine(same, slowness=10_000.0)
    machine.run(steps_of(), total_s(steps_of()))
    assert len(machine.samples) == 1


def test_looks_have_an_end() -> None:
    machine = Machine(same)
    machine.run(steps_of(), 10_000)
    assert max(machine.counts().values()) <= 3 + LOOKS_MAX
    assert machine.now_s < 1000


def test_turns_follow_sizes_repetitions_and_links() -> None:
    pairs = [step for step in steps_of() if isinstance(step, PairStep)]
    one = pairs[0]
    assert {turn_of(step) for step in pairs if turn_of(step) == turn_of(one)} == {turn_of(one)}
    assert len({turn_of(step) for step in pairs}) == 2 * 2 * 3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_looking_after_each_repetition_rarely_misleads(seed: int) -> None:
    cells_count, first, last = 4000, 3, 3 + LOOKS_MAX
    noise = np.random.default_rng(seed).normal(0, 0.05, (2, cells_count, last))
    wrong = np.zeros(cells_count, dtype=bool)
    for count in range(first, last):
        p_values = stats.ttest_ind(noise[0, :, :count], noise[1, :, :count], axis=1, equal_var=False).pvalue
        wrong |= p_values < INTERIM_P_VALUE
    interim = float(wrong.mean())
    wrong |= stats.ttest_ind(noise[0], noise[1], axis=1, equal_var=False).pvalue < 0.05
    assert interim < 0.015
    assert 0.04 < float(wrong.mean()) < 0.065


def test_equal_contestants_are_rarely_called_different_too_early() -> None:
    wrong, looks = 0, 0
    plan_ = [step for step in steps_of() if step.variant in ("send", "busy-poll@cubic")]
    of = cells(plan_)
    for seed in range(100):
        machine = Machine(lambda _step, _size: 10.0, seed=seed)
        machine.samples = [each for step in plan_ for each in machine.measured(step)]
        table = SeriesTable(machine.samples)
        wrong += sum(not stand(cell, table).is_open for cell in of)
        looks += len(of)
    assert looks == 400
    assert wrong <= 4


def test_a_time_is_said_in_minutes_and_seconds() -> None:
    assert [span(time_s) for time_s in (0.2, 40, 60, 100.4)] == ["1 s", "40 s", "1 min", "1 min 40 s"]


def test_the_rules_are_documented() -> None:
    text = (Path(__file__).parents[3] / "docs" / "runs.md").read_text(encoding="utf-8")
    assert f"{100 * (1 - INTERIM_P_VALUE):g} %" in text
    assert f"{LOOKS_MAX} times" in text
