"""Systems of daemons: what is planned, what is started and how often, and what one that is lost costs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from rocelab.launch.fake import FakeFabric, FakeLauncher, FakeRunning, Outcome, Start
from rocelab.study import clouds
from rocelab.study.clouds import CloudExecutor
from rocelab.study.execution import Setting
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError
from rocelab.study.runner import Runner
from rocelab.study.steps import CloudStep
from rocelab.study.tests.small import Seen, store
from rocelab.tools.cloud import NODE_FOLDER, REPORT_MARK

TEXT = """\
schema = 1
id = "cloud"
title = "A small cloud"
repetitions = 2
time_limit_s = 5

[tcp]
congestion_control = ["cubic"]

[fabric]
nodes = 4

[[link]]
id = "fdr"
kind = "bridge"
rate_mbps = 5400

[[link]]
id = "qdr"
kind = "bridge"
rate_mbps = 3200

[[test]]
level = "cloud"
test = "testdfsio"
sizes_bytes = [67108864, 134217728]

[test.variants]
tcp = ["sockets"]
"""
YCSB = """
[[test]]
level = "cloud"
test = "ycsb"
workloads = ["get", "put"]
records = 100
operations = 100

[test.variants]
tcp = ["sockets"]
"""
SPARK = """
[[test]]
level = "cloud"
test = "terasort"
sizes_bytes = [1000000]

[test.variants]
tcp = ["netty", "ucx"]
soft-roce = ["ucx"]
"""


def steps(text: str = TEXT) -> list[CloudStep]:
    return [step for step in plan(parse(text, "cloud.toml")) if isinstance(step, CloudStep)]


def report(ok: bool = True) -> str:
    data = {
        "version": 1,
        "values": [{"metric": "write_mib_per_s", "unit": "MiB/s", "statistic": "mean", "value": 50.0}],
        "params": {},
        "checks": [{"name": "exit status", "ok": ok, "found": "1 of 0"}],
    }
    return f"rocelab-phase TestDFSIO writes\n{REPORT_MARK}{json.dumps(data)}\n"


def daemon(said: str) -> Outcome:
    return Outcome(stdout=said, hangs=True)


def good(start: Start) -> Outcome:
    """A machine on which HDFS comes up and everything works."""
    words = " ".join(start.argv)
    if "-format" in words or "rm -rf" in words:
        return Outcome()
    if words.startswith("find "):
        return Outcome(stdout=f"{10**9}\n")
    if "Dfsio" in words:
        return Outcome(stdout=report())
    if ".NameNode" in words:
        return daemon("registerDatanode: from one\n" * 3)
    return daemon("")


@dataclass
class Machine:
    """An executor on a fake machine."""

    executor: CloudExecutor
    launcher: FakeLauncher
    said: list[str]
    """The phases of its steps."""

    def daemons(self, name: str) -> list[FakeRunning]:
        return [
            each for each in self.launcher.running if f".{name}" in " ".join(each.start.argv) and each.outcome.hangs
        ]


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Callable[[Start], Outcome]], Machine]:
    def made(answer: Callable[[Start], Outcome]) -> Machine:
        launcher = FakeLauncher(answer)
        fabric = FakeFabric(tuple(dict.fromkeys(step.link for step in steps())), node_count=4)
        said: list[str] = []
        return Machine(CloudExecutor(Setting(fabric, launcher, tmp_path, doing=said.append)), launcher, said)

    return made


Maker = Callable[[Callable[[Start], Outcome]], Machine]


def test_links_take_turns_and_each_repetition_has_another_first() -> None:
    order = [(step.link.id, step.repetition, step.size_bytes >> 20) for step in steps()]
    assert order[:4] == [("qdr", 0, 64), ("qdr", 0, 128), ("fdr", 0, 64), ("fdr", 0, 128)]
    assert [link for link, repetition, _ in order if repetition == 1] == ["fdr", "fdr", "qdr", "qdr"]


def test_workloads_are_tests_and_transports_take_turns() -> None:
    assert {step.test_name for step in steps(TEXT + YCSB)} == {"testdfsio", "ycsb-get", "ycsb-put"}
    sorts = [step for step in steps(TEXT + SPARK) if step.test_name == "terasort" and step.link.id == "fdr"]
    assert {(step.interconnect, step.variant) for step in sorts} == {
        ("tcp", "netty@cubic"),
        ("tcp", "ucx@cubic"),
        ("soft-roce", "ucx"),
    }
    assert sorts[0].variant != sorts[3].variant or sorts[0].interconnect != sorts[3].interconnect


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("nodes = 4", "nodes = 3"), "HDFS keeps 3 replicas"),
        (TEXT.replace("67108864, ", "1000, "), "TestDFSIO takes whole MiB"),
        (TEXT.replace('tcp = ["sockets"]', 'soft-roce = ["sockets"]'), "unknown variant of soft-roce for testdfsio"),
        (TEXT + YCSB.replace('"get", "put"', '"get", "get"'), "get is there twice"),
        (TEXT + YCSB.replace('"put"', '"delete"'), "is not known; allowed"),
        (TEXT + SPARK.replace('"netty"', '"neti"'), "did you mean 'netty'"),
        (TEXT.replace("sizes_bytes", 'runner = "tez"\nsizes_bytes'), '"tez" is not known; allowed: "local" or "yarn"'),
        (TEXT.replace('"testdfsio"', '"testdfs"'), '"testdfs" is not known'),
    ],
)
def test_what_cannot_be_is_told(text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        parse(text, "cloud.toml")


def test_a_system_stays_up_for_steps_on_its_link_and_no_longer(make: Maker, tmp_path: Path) -> None:
    machine = make(good)
    for step in steps()[:4]:
        execution = machine.executor.execute(step, tmp_path / "log")
        assert execution.error is None
        assert execution.reading is not None
    assert len(machine.daemons("NameNode")) == 2
    assert len(machine.daemons("DataNode")) == 6
    assert all(each.stopped for each in machine.daemons("NameNode")[:1])
    machine.executor.close()
    assert all(each.stopped or not each.outcome.hangs for each in machine.launcher.running)
    assert [start.argv for start in machine.launcher.starts[-4:]] == [("rm", "-rf", NODE_FOLDER)] * 4


def test_a_warm_up_runs_once_for_a_system(make: Maker, tmp_path: Path) -> None:
    machine = make(good)
    for step in steps()[:2]:
        machine.executor.execute(step, tmp_path / "log")
    runs = [start.argv for start in machine.launcher.starts if any("Dfsio" in word for word in start.argv)]
    assert [argv[-2] for argv in runs] == ["32", "64", "128"]


def test_a_client_is_told_whole_paths_for_the_files_it_leaves(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs in a folder of its node, while the folder of a run is told as it was given: results/..."""
    monkeypatch.chdir(tmp_path)
    Path("logs").mkdir()
    machine = make(_hbase)
    step = next(step for step in steps(TEXT + YCSB) if step.test_name == "ycsb-get")
    machine.executor.execute(step, Path("logs/step.log"))
    words = [word for start in machine.launcher.starts if "site.ycsb.Client" in start.argv for word in start.argv]
    assert f"hdrhistogram.output.path={tmp_path}/logs/step-" in words


def _hbase(start: Start) -> Outcome:
    words = " ".join(start.argv)
    if "HQuorumPeer" in words:
        return daemon("binding to port 0.0.0.0/0.0.0.0:2181")
    if "HRegionServer" in words or "HMaster" in words:
        return daemon("Serving as node. Master has completed initialization")
    return Outcome() if "site.ycsb" in words or "Tables" in words else good(start)


def test_a_daemon_that_is_lost_costs_one_step(make: Maker, tmp_path: Path) -> None:
    """It ends while the client of the second step runs."""
    machine = make(lambda start: _hanging_client(start, machine))
    executions = [machine.executor.execute(step, tmp_path / "log") for step in steps()[:4]]
    errors = [execution.error for execution in executions]
    assert errors[0] is None
    assert errors[1] is not None
    assert "DataNode on node1 ended (killed by signal 9):\nblock is corrupt" in errors[1]
    assert errors[2] is None
    assert errors[3] is None
    assert "starting NameNode on node0" in machine.said
    assert "TestDFSIO writes" in "".join(machine.said) or "waiting for NameNode on node0" in machine.said


def _hanging_client(start: Start, machine: Machine) -> Outcome:
    words = " ".join(start.argv)
    lost = machine.daemons("DataNode")
    if "Dfsio" in words and words.endswith("128 3") and len(lost) == 3:
        lost[0].outcome = Outcome(exit_status=-9, stderr="block is corrupt")
        return Outcome(stdout="rocelab-phase TestDFSIO writes\n", hangs=True)
    return good(start)


def test_a_daemon_that_does_not_come_up_shows_the_end_of_its_log(
    make: Maker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clouds, "UP_LIMIT_S", 0.5)
    monkeypatch.setattr(clouds, "_LONGER_MAX", 1.0)
    machine = make(lambda start: daemon("waiting\n") if ".NameNode" in " ".join(start.argv) else good(start))
    machine.launcher.answer = lambda start: (
        daemon("cannot bind port 8020")
        if ".NameNode" in " ".join(start.argv) and "-format" not in start.argv
        else good(start)
    )
    execution = machine.executor.execute(steps()[0], tmp_path / "log")
    assert execution.error is not None
    assert "NameNode on node0 was not up within 0.5 s:\ncannot bind port 8020" in execution.error
    assert all(each.stopped for each in machine.daemons("DataNode"))


def test_a_client_that_hangs_ends_its_system(make: Maker, tmp_path: Path) -> None:
    machine = make(
        lambda start: daemon("") if "Dfsio" in " ".join(start.argv) and start.argv[-2] == "64" else good(start)
    )
    first, second = steps()[:2]
    execution = machine.executor.execute(replace(first, time_limit_s=0.3), tmp_path / "log")
    assert execution.hung
    assert machine.daemons("NameNode")[0].stopped
    assert machine.executor.execute(second, tmp_path / "log").error is None


def test_a_failed_check_fails_the_sample_and_keeps_the_system(tmp_path: Path) -> None:
    def answer(start: Start) -> Outcome:
        words = " ".join(start.argv)
        return Outcome(stdout=report(ok=False), exit_status=1) if words.endswith("Dfsio 2 64 3") else good(start)

    launcher = FakeLauncher(answer)
    fabric = FakeFabric((steps()[0].link,), node_count=4)
    run = store(tmp_path)
    outcome = Runner(run, fabric, launcher, Seen(), {}).run(steps()[:2])
    assert (outcome.done, outcome.failed) == (1, 1)
    samples = run.current_samples()
    assert samples[0].error == "TestDFSIO: exit status: 1 of 0"
    assert samples[1].value == 50.0
    assert len([start for start in launcher.starts if "-format" in start.argv]) == 1
