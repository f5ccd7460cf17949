"""HDFS, HBase and Spark for real, at their smallest. The machine has to have the jars that `make setup-cloud` gets."""

from __future__ import annotations

import functools
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError
from rocelab.launch.congestion import CongestionControls
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.study.clouds import CloudExecutor
from rocelab.study.execution import Setting
from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.steps import CloudStep
from rocelab.study.tests.watching import connections
from rocelab.tools.cloud import NODE_FOLDER

# Starting a system takes from ten seconds to a minute, depending on what else the machine does.
pytestmark = [pytest.mark.fabric, pytest.mark.slow, pytest.mark.timeout(400)]

TEXT = """\
schema = 1
id = "real"
title = "Small and real"
repetitions = 1
time_limit_s = 120

[tcp]
congestion_control = ["reno"]

[fabric]
nodes = 4

[[link]]
id = "ethernet"
kind = "bridge"
rate_mbps = 1000

[[test]]
level = "cloud"
test = "testdfsio"
sizes_bytes = [16777216]

[test.variants]
tcp = ["sockets"]

[[test]]
level = "cloud"
test = "ycsb"
workloads = ["mix", "d", "e", "f"]
records = 500
operations = 500

[test.variants]
tcp = ["sockets"]

[[test]]
level = "cloud"
test = "terasort"
sizes_bytes = [8000000]

[test.variants]
tcp = ["netty"]
soft-roce = ["ucx"]
"""


@pytest.fixture(scope="module")
def steps() -> list[CloudStep]:
    made = [step for step in plan(parse(TEXT, "real.toml")) if isinstance(step, CloudStep)]
    missing = [each for step in made for each in step.executables if each.path is None]
    if missing:
        pytest.skip(f"{missing[0].name} is missing: {missing[0].advice}")
    return made


@pytest.fixture(scope="module")
def executor(steps: list[CloudStep], tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudExecutor]:
    try:
        fabric = emulated.up([steps[0].link], emulated.default_names(4))
    except FabricError as error:
        pytest.skip(f"no fabric: {error}")
    with fabric:
        launcher = NamespaceLauncher(fabric)
        CongestionControls(fabric.nodes, launcher).choose("ethernet", "reno")
        made = CloudExecutor(Setting(fabric, launcher, tmp_path_factory.mktemp("logs")))
        with connections(launcher, fabric.nodes) as seen:
            yield made
            # HDFS, HBase and Spark, daemons and clients: all have what was chosen, at both ends.
            assert seen.controls() == {node.name: {"reno"} for node in fabric.nodes}
        made.close()


def chosen(steps: list[CloudStep], test: str, interconnect: str = "tcp") -> CloudStep:
    return next(step for step in steps if step.test_name == test and step.interconnect == interconnect)


def measured(executor: CloudExecutor, step: CloudStep, tmp_path: Path) -> dict[tuple[str, str], float]:
    execution = executor.execute(step, tmp_path / "step.log")
    assert execution.error is None
    assert execution.reading is not None
    return {(value.metric, value.statistic): value.value for value in execution.reading.values}


def test_dfsio_writes_and_reads_on_hdfs(executor: CloudExecutor, steps: list[CloudStep], tmp_path: Path) -> None:
    found = measured(executor, chosen(steps, "testdfsio"), tmp_path)
    assert found["write_mib_per_s", "mean"] > 0
    assert found["read_mib_per_s", "mean"] > 0


@pytest.mark.nightly(reason="HBase takes a minute to start and to fill, on the HDFS that TestDFSIO has always")
def test_ycsb_on_the_same_hdfs(executor: CloudExecutor, steps: list[CloudStep], tmp_path: Path) -> None:
    found = measured(executor, chosen(steps, "ycsb-mix"), tmp_path)
    assert found["throughput_per_s", "mean"] > 0
    assert found["read_latency_us", "p99"] >= found["read_latency_us", "median"] > 0
    assert {"step-READ.hdr", "step-UPDATE.hdr"} <= {file.name for file in tmp_path.glob("*.hdr")}


@pytest.mark.nightly(reason="each of the workloads of YCSB takes half a minute")
@pytest.mark.parametrize(
    ("workload", "operation"),
    [("d", "insert"), ("e", "scan"), ("f", "read_modify_write")],
    ids=["inserts", "scans", "read and written again"],
)
def test_each_workload_of_ycsb_has_the_latency_of_its_own_operation(
    executor: CloudExecutor, steps: list[CloudStep], tmp_path: Path, workload: str, operation: str
) -> None:
    found = measured(executor, chosen(steps, f"ycsb-{workload}"), tmp_path)
    assert found[f"{operation}_latency_us", "p99"] > 0


@pytest.mark.nightly(reason="two sorts of Spark, and a start of HDFS, take two minutes")
def test_after_a_killed_daemon_the_next_sort_goes_over_soft_roce(
    executor: CloudExecutor, steps: list[CloudStep], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed once the sort has begun; the system is started anew for the next."""
    killed: list[str] = []

    def doing(phase: str) -> None:
        if phase.startswith("TeraGen") and not killed:
            assert executor._system is not None
            daemon, running = next(each for each in executor._system.running if "DataNode" in each[0].name)
            killed.append(daemon.name)
            running.signal(signal.SIGKILL)

    monkeypatch.setattr(executor, "_doing", doing)
    failed = executor.execute(chosen(steps, "terasort"), tmp_path / "step.log")
    assert failed.error is not None
    assert failed.error.startswith(f"{killed[0]} ended (killed by signal 9)")
    found = measured(executor, chosen(steps, "terasort", "soft-roce"), tmp_path)
    assert found["terasort_remote_bytes", "total"] > 0
    assert found["node_throughput_mbps", "max"] > 0


def test_nothing_is_left_on_a_node(executor: CloudExecutor) -> None:
    executor.close()
    for node in executor._nodes:
        assert not Path(f"/proc/{node.pid}/root{NODE_FOLDER}").exists()
        # The node itself, and the processes that look after it.
        programs = [path for path in Path(f"/proc/{node.pid}/root/proc").glob("[0-9]*") if "java" in _command(path)]
        assert programs == []


def _command(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_rocelab_stops_while_daemons_start(
    steps: list[CloudStep], tmp_path: Path, number: signal.Signals
) -> None:
    """By SIGKILL, when rocelab itself can tidy up nothing, and by Ctrl-C."""
    study = tmp_path / "real.toml"
    study.write_text(TEXT, encoding="utf-8")
    command = [sys.executable, "-m", "rocelab", "run", str(study), "--results", str(tmp_path), "--skip-missing"]
    with subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A shell starts what it puts in the background with SIGINT ignored, and children inherit
        # that.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    ) as rocelab:
        try:
            _await(lambda: _daemons_of(tmp_path), "daemons to start")
        except BaseException:
            rocelab.kill()
            raise
        rocelab.send_signal(number)
    _await(lambda: not _daemons_of(tmp_path), "daemons to end")
    assert steps


def _daemons_of(results: Path) -> list[Path]:
    """Java programs whose settings are in a run below this folder."""
    found = [path for path in Path("/proc").glob("[0-9]*") if f"{results}/" in _command(path)]
    return [path for path in found if "java" in _command(path).split("\0") and _state(path) != "Z"]


def _state(process: Path) -> str:
    try:
        return (process / "stat").read_text().rpartition(") ")[2][:1]
    except OSError:
        return "Z"


def _await(condition: Callable[[], object], what: str) -> None:
    deadline_s = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline_s, f"waited two minutes for {what}"
        time.sleep(0.1)
