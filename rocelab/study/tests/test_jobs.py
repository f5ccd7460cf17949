"""MPI tests of a study: what may stand there, how they are planned, and what becomes of one start with many sizes."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from rocelab.launch.fake import FakeFabric, FakeLauncher, Outcome, Start
from rocelab.results import LinkInfo, Provenance, RunInfo, RunStore
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import HANGS_MAX, Runner, remaining
from rocelab.study.steps import JobStep, Step
from rocelab.study.tests import small

TEXT = """\
schema = 1
id = "mpi"
title = "MPI"
repetitions = 2
time_limit_s = 5

[tcp]
congestion_control = ["cubic"]

[fabric]
nodes = 4

[[link]]
id = "switch"
kind = "bridge"

[[test]]
level = "mpi"
test = "latency"
nodes = 2
sizes_bytes = { from = 1, to = 4 }
iterations = 100

[test.variants]
tcp = ["openmpi-ob1", "openmpi-ucx"]
soft-roce = ["openmpi-ucx", "mpich-ucx"]

[[test]]
level = "mpi"
test = "allreduce"
ranks_per_node = 4
mapping = "node"
sizes_bytes = [4, 64]
repetitions = 1

[test.variants]
tcp = ["mpich-ofi@cubic"]
soft-roce = ["mpich-ucx"]
"""


def jobs(text: str = TEXT) -> list[JobStep]:
    return [step for step in plan(small.study(text)) if isinstance(step, JobStep)]


def store(root: Path) -> RunStore:
    info = RunInfo(
        id="run",
        study="mpi",
        title="MPI",
        fabric="emulated",
        status="running",
        started_at="2026-01-01T00:00:00.000Z",
        seed=1,
        repetitions=2,
        links=(LinkInfo("switch", "bridge", 1500),),
        provenance=Provenance("m", "cpu", 2, 1, "k", "d", "rocelab run", "0", "3"),
        planned_steps=len(jobs()),
    )
    return RunStore.create(root, info, TEXT)


def reports(start: Start, sizes: tuple[int, ...]) -> str:
    test = next(word for word in start.argv if word in {"latency", "allreduce"})
    return "".join(
        json.dumps(
            {
                "format": 1,
                "benchmark": test,
                "size_bytes": size,
                "validation": "pass",
                "wrong_bytes": 0,
                "metrics": {"latency_us": 2.0 + size},
            }
        )
        + "\n"
        for size in sizes
    )


def good(start: Start) -> Outcome:
    return Outcome(stdout=reports(start, (1, 2, 4, 8, 16, 32, 64)))


def run(store: RunStore, launcher: FakeLauncher, steps: list[Step] | None = None) -> int:
    fabric = FakeFabric(tuple(link.profile() for link in small.study(TEXT).link), node_count=4)
    return Runner(store, fabric, launcher, small.Seen(), {}).run([*jobs()] if steps is None else steps).failed


def test_repetitions_take_turns_among_the_variants() -> None:
    order = [(job.repetition, job.test_name, f"{job.interconnect} {job.variant}") for job in jobs()]
    assert len(order) == 2 * 4 + 2
    assert [repetition for repetition, _, _ in order] == sorted(repetition for repetition, _, _ in order)
    rounds = [[name for at, test, name in order if (at, test) == (which, "latency")] for which in (0, 1)]
    assert set(rounds[0]) == set(rounds[1])
    assert rounds[0] != rounds[1], "the one that goes first changes"


def test_a_start_has_all_sizes_and_says_where_it_runs() -> None:
    job = next(job for job in jobs() if job.test_name == "allreduce")
    assert [(key.size_bytes, key.nodes, key.ranks, key.level) for key in job.keys] == [
        (4, 4, 16, "mpi"),
        (64, 4, 16, "mpi"),
    ]
    assert job.time_limit_s > 5 + job.expected_s


def test_every_size_becomes_a_sample(tmp_path: Path) -> None:
    made, launcher = store(tmp_path), FakeLauncher(good)
    assert run(made, launcher) == 0
    assert made.info.status == "complete"
    samples = made.samples()
    assert len(samples) == 2 * 4 * 3 + 2 * 2
    assert made.done_keys() == {key for job in jobs() for key in job.keys}
    assert remaining(jobs(), made) == []
    latency = next(s for s in samples if (s.test, s.variant, s.size_bytes) == ("latency", "mpich-ucx", 4))
    assert (latency.value, latency.nodes, latency.ranks, latency.tool) == (6.0, 2, 2, "rocelab-mpi")
    assert latency.params["mpi"] == "MPICH"
    assert "UCX_TLS=rc_v,self,sm" in latency.command
    assert "urxe" in latency.command
    allreduce = next(start for start in launcher.starts if "allreduce" in start.argv)
    assert allreduce.node.name == "node0"
    assert "node0:4,node1:4,node2:4,node3:4" in allreduce.argv


def test_each_node_keeps_to_its_own_cores(tmp_path: Path) -> None:
    launcher = FakeLauncher(good, core_count=3)
    run(store(tmp_path), launcher)
    found = {(str(start.cores), str(cores)) for start, (_, cores) in zip(launcher.starts, launcher.shells, strict=True)}
    # One core for each of two nodes; four nodes share the three.
    assert found == {("range(0, 1)", "{'node0': range(0, 1), 'node1': range(1, 2)}"), ("()", "{}")}


def test_a_test_without_sizes_is_one_sample(tmp_path: Path) -> None:
    text = TEXT.replace('test = "allreduce"', 'test = "barrier"').replace("sizes_bytes = [4, 64]", "")
    steps: list[Step] = [job for job in jobs(text) if job.test_name == "barrier"]
    assert [key.size_bytes for step in steps for key in step.keys] == [None, None]
    report = {
        "format": 1,
        "benchmark": "barrier",
        "size_bytes": 0,
        "validation": "none",
        "metrics": {"latency_us": 7.5},
    }

    def answer(start: Start) -> Outcome:
        return Outcome(
            stdout="" if any(Path(part).name == "urxe" for part in start.argv) else json.dumps(report) + "\n"
        )

    made, launcher = store(tmp_path), FakeLauncher(answer)
    assert run(made, launcher, steps) == 1
    assert all("-m" not in start.argv for start in launcher.starts)
    samples = {sample.interconnect: sample for sample in made.samples()}
    assert (samples["tcp"].value, samples["tcp"].size_bytes, samples["tcp"].ranks) == (7.5, None, 16)
    assert "nothing that can be read" in str(samples["soft-roce"].error)
    assert [step.interconnect for step in remaining(steps, made)] == ["soft-roce"]


def test_what_a_job_measured_before_it_hung_is_kept(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        if "allreduce" in start.argv and "ofi" in start.env.get("MPIR_CVAR_CH4_NETMOD", ""):
            return Outcome(stdout=reports(start, (4,)), stderr="waiting for node3", hangs=True)
        return good(start)

    made = store(tmp_path)
    assert run(made, FakeLauncher(answer)) == 1
    found = {s.size_bytes: s for s in made.samples() if (s.test, s.variant) == ("allreduce", "mpich-ofi@cubic")}
    assert found[4].ok
    assert "it hung and was stopped (time limit of" in str(found[64].error)
    assert "waiting for node3" in str(found[64].error)
    assert (found[64].metric, found[64].value) == ("latency_us", None)
    assert [step.variant for step in remaining(jobs(), made)] == ["mpich-ofi@cubic"]


def test_a_job_that_fails_at_its_end_has_measured_nothing(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        return Outcome(stdout=reports(start, (1, 2, 4, 64)), stderr="rank 1 crashed", exit_status=139)

    made = store(tmp_path)
    assert run(made, FakeLauncher(answer)) == len(jobs())
    assert not any(sample.ok for sample in made.samples())
    assert "ended with exit status 139: rank 1 crashed" in str(made.samples()[0].error)


#: As Open MPI prints it, shortened.
CRASH_IN_INIT = """\
[node1:00405] Signal: Segmentation fault (11)
[node1:00405] [ 1] /usr/lib/libmpi.so.40(mca_pml_ob1_recv_frag_callback_match+0x95)[0x7fd90ce78f25]
[node1:00405] [ 9] /usr/lib/libmpi.so.40(ompi_mpi_init+0x425)[0x7fd90cc91215]
"""


@pytest.mark.parametrize(
    ("crashes", "stdout", "before"),
    [
        pytest.param(2, "", 2, id="before it begins"),
        pytest.param(3, "", None, id="again and again"),
        pytest.param(1, "sizes", None, id="after it has measured"),
    ],
)
def test_a_job_of_open_mpi_that_crashes_in_its_start_is_measured_again_and_says_so(
    tmp_path: Path, crashes: int, stdout: str, before: int | None
) -> None:
    step, attempts = jobs()[0], itertools.count(1)

    def answer(start: Start) -> Outcome:
        if next(attempts) <= crashes:
            return Outcome(exit_status=139, stdout=reports(start, (1, 2)) if stdout else "", stderr=CRASH_IN_INIT)
        return good(start)

    kept = store(tmp_path)
    launcher = FakeLauncher(answer)
    assert run(kept, launcher, [step]) == (0 if before else 1)
    assert {sample.params.get("disturbed_before") for sample in kept.samples() if sample.ok} <= {before}
    assert len(launcher.starts) == (1 if stdout else 3)


def test_jobs_that_hang_again_and_again_are_given_up(tmp_path: Path) -> None:
    text = TEXT.replace("repetitions = 2", f"repetitions = {HANGS_MAX + 2}")
    launcher = FakeLauncher(lambda start: Outcome(hangs=True) if "allreduce" not in start.argv else good(start))
    run(store(tmp_path), launcher, [job for job in jobs(text) if job.test_name == "latency"])
    assert len(launcher.starts) == 4 * HANGS_MAX


@pytest.mark.parametrize(
    ("good", "bad", "key", "says"),
    [
        ('level = "mpi"', 'level = "mpy"', "test[1].level", 'allowed: "network", "mpi"'),
        ("nodes = 2", "nodes = 5", "test[1].nodes", "fabric.nodes is 4"),
        ("nodes = 4", "nodes = 251", "fabric.nodes", "less than or equal to 250"),
        ("iterations = 100", "iteratons = 100", "test[1].iteratons", "did you mean 'iterations'?"),
        ('kind = "bridge"', 'kind = "direct"', "test[2].links", "joins the first two nodes"),
        ("nodes = 2", "nodes = 3", "test[1].test", "between 2 processes"),
        ("[4, 64]", "[4, 48]", "test[2].test", "never gives 48"),
        (
            'tcp = ["mpich-ofi@cubic"]',
            'tcp = ["mpich-ob1"]',
            "test[2].variants.tcp",
            "unknown variant of tcp at the level mpi",
        ),
        ("iterations = 100", 'suite = "osu"', "test[1].suite", "add suite_folder"),
        ("sizes_bytes = { from = 1, to = 4 }", "", "test[1].sizes_bytes", "this key is missing"),
        ('test = "latency"', 'test = "barrier"', "test[1].sizes_bytes", "leave sizes_bytes out"),
        ('mapping = "node"', 'mapping = "core"', "test[2].mapping", 'allowed: "slot" or "node"'),
    ],
)
def test_a_mistake_in_an_mpi_test(good: str, bad: str, key: str, says: str) -> None:
    with pytest.raises(StudyError) as caught:
        small.study(TEXT.replace(good, bad, 1))
    problems = {problem.key: problem.text for problem in caught.value.problems}
    assert key in problems, problems
    assert says in problems[key]


def test_the_same_test_on_another_scale_is_another_measurement() -> None:
    second = TEXT[TEXT.index('[[test]]\nlevel = "mpi"\ntest = "allreduce"') :]
    small.study(TEXT + "\n" + second.replace("ranks_per_node = 4", "ranks_per_node = 2"))
    with pytest.raises(StudyError, match="measured twice"):
        small.study(TEXT + "\n" + second)


def test_what_is_missing_names_the_make_target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROCELAB_PROGRAMS", str(tmp_path))
    monkeypatch.setenv("ROCELAB_MPI_BENCH", str(tmp_path))
    advice = {executable.advice for job in jobs() for executable in job.executables if str(tmp_path) in executable.name}
    assert any("Open MPI, from PyPI: `make setup-programs` makes it" in each for each in advice)
    assert any("MPICH, from PyPI: `make setup-programs` makes it" in each for each in advice)
    assert any("make setup-programs build" in each for each in advice)


def test_an_mpi_of_the_study_takes_the_place_of_ours() -> None:
    text = TEXT.replace("[fabric]", '[mpi]\nopenmpi = "/opt/openmpi"\n\n[fabric]')
    folders = {job.mpi.kind: str(job.mpi.folder) for job in jobs(text)}
    assert folders["openmpi"] == "/opt/openmpi"
    assert folders["mpich"].endswith("mpich/bin")
