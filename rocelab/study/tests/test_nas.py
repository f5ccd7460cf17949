"""NAS programs in studies: the plan, what is refused, and the samples of a run whose programs are played."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.results import LinkInfo, Provenance, RunInfo, RunStore
from rocelab.study.plan import measurement_count, plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner
from rocelab.study.steps import JobStep
from rocelab.study.tests import small

TEXT = """\
schema = 1
id = "nas"
title = "NAS"
repetitions = 2

[tcp]
congestion_control = ["cubic"]

[fabric]
nodes = 4

[[link]]
id = "switch"
kind = "bridge"

[[test]]
level = "nas"
programs = ["is", "bt"]
classes = ["S", "A"]

[test.variants]
tcp = ["openmpi-ob1"]
soft-roce = ["mpich-ucx"]
"""


def jobs(text: str = TEXT) -> list[JobStep]:
    return [step for step in plan(small.study(text)) if isinstance(step, JobStep)]


def _longest_s(text: str) -> float:
    return max(step.time_limit_s for step in jobs(text))


def test_every_program_and_class_is_a_start_without_a_size() -> None:
    found = jobs()
    assert len(found) == measurement_count(found) == 2 * 2 * 2 * 2
    assert {step.test_name for step in found} == {"is.S", "bt.S", "is.A", "bt.A"}
    assert {(key.level, key.size_bytes, key.nodes, key.ranks) for step in found for key in step.keys} == {
        ("nas", None, 4, 4)
    }
    assert len({key for step in found for key in step.keys}) == len(found)
    assert found[0].sizes_bytes == ()
    assert _longest_s(TEXT.replace('"A"', '"C"')) > _longest_s(TEXT)


def test_variants_of_a_program_follow_each_other() -> None:
    names = [step.test_name for step in jobs()][1:-1]
    assert sum(one != other for one, other in pairwise(names)) <= len(names) / 2 + 1


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("nodes = 4", "nodes = 2"), "bt runs on 1, 4, 9, 16, ... processes, and nodes x ranks_per_node is 2"),
        (("nodes = 4", "nodes = 3"), "is runs on 1, 2, 4, 8, ... processes, and nodes x ranks_per_node is 3"),
        (('"bt"]', '"gt"]'), '"gt" is not known; allowed: "is"'),
        (('"A"]', '"Q"]'), '"Q" is not known; allowed: "S"'),
        (('"A"]', '"S"]'), "the same is there twice"),
        (('"A"]', '"A"]\nsuite = "npb"'), "add suite_folder, the folder in which you have built it"),
        (('"A"]', '"A"]\nsizes_bytes = [1]'), "unknown key 'sizes_bytes'"),
        (('"openmpi-ob1"', '"blocking"'), "unknown variant of tcp at the level nas 'blocking'"),
        (('"openmpi-ob1"', '"openmpi-ob1", "openmpi-ob1"'), "the same variant is measured twice on the same link"),
    ],
)
def test_what_cannot_be_is_said_before_anything_runs(change: tuple[str, str], expected: str) -> None:
    with pytest.raises(StudyError) as raised:
        small.study(TEXT.replace(*change))
    assert expected in str(raised.value)


def answer(start: Start) -> Outcome:
    """Class A of IS gives wrong results."""
    at = start.argv.index("--json")
    program, problem_class = start.argv[at - 2 : at]
    wrong = (program, problem_class) == ("is", "A")
    metrics = {"time_s": 1.5, "mops": 10.0, "mpi_percent": 30.0, "mpi_percent_max": 35.0}
    result = {
        "format": 1,
        "benchmark": program,
        "class": problem_class,
        "ranks": 4,
        "verification": "fail" if wrong else "pass",
        "checks": [{"name": "keys", "passed": not wrong}],
        "metrics": {} if wrong else metrics,
    }
    return Outcome(stdout=json.dumps(result) + "\n", exit_status=int(wrong))


def test_samples(tmp_path: Path) -> None:
    study = small.study(TEXT)
    info = RunInfo(
        id="run",
        study="nas",
        title="NAS",
        fabric="emulated",
        status="running",
        started_at="2026-01-01T00:00:00.000Z",
        seed=1,
        repetitions=2,
        links=(LinkInfo("switch", "bridge", 1500),),
        provenance=Provenance("m", "cpu", 2, 1, "k", "d", "rocelab run", "0", "3"),
        planned_steps=len(jobs()),
    )
    store = RunStore.create(tmp_path, info, TEXT)
    fabric = FakeFabric(tuple(link.profile() for link in study.link), node_count=4)
    outcome = Runner(store, fabric, FakeLauncher(answer), small.Seen(), {"rocelab-nas": "1.0"}).run(jobs())

    assert outcome.failed == 4
    samples = store.current_samples()
    good = [sample for sample in samples if sample.test == "bt.A"]
    assert len(good) == 4 * 4
    assert {(each.metric, each.unit, each.statistic, each.value) for each in good} == {
        ("time_s", "s", "max", 1.5),
        ("mops", "Mop/s", "total", 10.0),
        ("mpi_percent", "%", "mean", 30.0),
        ("mpi_percent", "%", "max", 35.0),
    }
    assert {(each.level, each.size_bytes, each.ranks, each.tool) for each in good} == {("nas", None, 4, "rocelab-nas")}
    wrong = [sample for sample in samples if sample.test == "is.A"]
    assert len(wrong) == 4
    assert all("differ from those that are published" in (each.error or "") for each in wrong)
    assert wrong[0].metric == "time_s"
    assert len(store.done_keys()) == 12
