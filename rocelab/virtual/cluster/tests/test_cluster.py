"""Studies on a Dask cluster of processes of this machine: the same samples as without, and what goes wrong in words."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rocelab.fabric.base import FabricError
from rocelab.results import Provenance, RunInfo, RunStore, Sample
from rocelab.study.runner import remaining
from rocelab.virtual.loading import parse
from rocelab.virtual.runner import AnyStep, Job, VirtualRunner
from rocelab.virtual.simulator import simulator
from rocelab.virtual.smpi.tests.test_smpi import SMALL as SMALL_MPI
from rocelab.virtual.steps import plan
from rocelab.virtual.tests.test_studies import SMALL, SilentWatcher

distributed = pytest.importorskip("distributed", reason="Dask is not installed: make setup")
# Dask and what it stands on say more than rocelab's tests put up with.
pytestmark = pytest.mark.filterwarnings("default")

from rocelab.virtual.cluster import work  # noqa: E402
from rocelab.virtual.cluster.crew import Cluster, Named, OnCluster, reached  # noqa: E402

TOOLS = {"rocelab-virtual": "1"}
#: Takes minutes.
LONG = SMALL.replace("measured_us = 200", "measured_us = 50_000_000").replace("series_us = 50\n", "")


@pytest.fixture(scope="module")
def workers() -> Iterator[Any]:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def cluster(workers: Any) -> Iterator[Cluster]:
    with reached(Named.parse(workers.scheduler_address)) as found:
        yield found


def _until(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def store_in(folder: Path, steps: list[AnyStep]) -> RunStore:
    unknown = Provenance("", "", 1, 1, "", "", "", "", "")
    info = RunInfo("run", "small", "Small", "virtual", "running", "", 1, 1, (), unknown, len(steps))
    return RunStore.create(folder, info, SMALL)


def timeless(samples: list[Sample]) -> list[Sample]:
    return [dataclasses.replace(sample, started_at="", duration_s=0.0) for sample in samples]


def test_a_cluster_gives_the_samples_and_logs_of_one_machine_in_the_order_of_the_plan(
    cluster: Cluster, tmp_path: Path
) -> None:
    steps = plan(parse(SMALL, "study.toml"))
    here, there = store_in(tmp_path / "here", steps), store_in(tmp_path / "there", steps)
    assert VirtualRunner(here, SilentWatcher(), TOOLS).run(steps).failed == 0
    crew = OnCluster(cluster, there, TOOLS, SilentWatcher())
    assert VirtualRunner(there, SilentWatcher(), TOOLS).run(steps, crew).failed == 0
    assert timeless(there.samples()) == timeless(here.samples())
    logs = [{path.name: path.read_bytes() for path in store.logs.iterdir()} for store in (here, there)]
    assert logs[0] == logs[1]
    assert len(logs[0]) == len(steps)


def test_mpi_programs_and_their_calibration_come_out_the_same_on_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    steps = plan(parse(SMALL_MPI, "study.toml"))
    if any(each.path is None for step in steps for each in step.executables):
        pytest.skip("smpirun or rocelab-mpi for SimGrid is not there: make setup, make build")
    here, there = store_in(tmp_path / "here", steps), store_in(tmp_path / "there", steps)
    assert VirtualRunner(here, None, TOOLS).run(steps).failed == 0
    assert VirtualRunner(there, None, TOOLS).run(steps, OnCluster(cluster, there, TOOLS, None)).failed == 0
    assert timeless(there.samples()) == timeless(here.samples())
    for sample in there.samples():
        assert sample.log is not None
        assert (there.path / sample.log).is_file()


def test_each_worker_says_what_it_has_for_a_study(cluster: Cluster) -> None:
    facts = cluster.ask(plan(parse(SMALL, "study.toml")))
    assert len(facts) == 2
    for each in facts.values():
        assert each.code == work.code()
        assert each.missing == ()
        assert list(each.tools) == ["rocelab-virtual"]
        assert each.available_bytes > 0


def test_a_worker_with_another_rocelab_is_named(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocelab.virtual.cluster.crew.__version__", "0.0.1")
    with pytest.raises(FabricError, match=r"(?s)another rocelab.*tcp://127.* has rocelab .*, and here is 0\.0\.1"):
        cluster.ask([])


def test_a_worker_of_the_same_version_with_other_code_is_named_before_and_during_a_run(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "code", lambda: "0123456789abcdef")
    with pytest.raises(FabricError, match="as here, and other code or profiles; install the same on all machines"):
        cluster.ask([])
    steps = plan(parse(SMALL, "study.toml"))[:1]
    store = store_in(tmp_path, steps)
    crew = OnCluster(cluster, store, TOOLS, None)
    with pytest.raises(FabricError, match="has other code or profiles, though it has the same version"):
        VirtualRunner(store, None, TOOLS).run(steps, crew)
    assert store.info.status == "interrupted"


@pytest.fixture
def interruptible() -> Iterator[None]:
    # A shell starts what it puts in the background with SIGINT ignored, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interruption_keeps_what_was_simulated_and_ends_what_was_under_way(cluster: Cluster, tmp_path: Path) -> None:
    steps = plan(parse(LONG, "study.toml"))
    store = store_in(tmp_path, steps)
    long = [step for step in steps if step.test_name == "mesh"]
    short = [step for step in steps if step not in long]
    order = [long[0], *short]
    jobs: list[Job] = []

    class Seen(OnCluster):
        def begin(self, step: AnyStep, order: int) -> Job:
            jobs.append(super().begin(step, order))
            return jobs[-1]

    def interrupted() -> None:
        _until(lambda: len(jobs) == len(order) and all(job.done() for job in jobs[1:]))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupted)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        VirtualRunner(store, None, TOOLS).run(order, Seen(cluster, store, TOOLS, None))
    thread.join()
    assert remaining(order, store) == [long[0]]
    assert store.info.status == "interrupted"
    # Both workers are free again.
    store = store_in(tmp_path / "again", short)
    crew = OnCluster(cluster, store, TOOLS, None)
    assert VirtualRunner(store, None, TOOLS).run(short, crew).failed == 0


def test_a_step_whose_workers_are_lost_has_failed_and_others_go_on(tmp_path: Path) -> None:
    steps = plan(parse(LONG, "study.toml"))
    long, short = steps[-1:], steps[:1]
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as workers,
        reached(Named.parse(workers.scheduler_address)) as cluster,
    ):
        # Else three more workers would have to be lost.
        workers.scheduler.allowed_failures = 0
        store = store_in(tmp_path, [*long, *short])
        pid = next(iter(workers.workers.values())).pid

        def lose() -> None:
            _until(lambda: any(each.processing for each in workers.scheduler.workers.values()))
            os.kill(pid, signal.SIGKILL)

        thread = threading.Thread(target=lose)
        thread.start()
        outcome = VirtualRunner(store, None, TOOLS).run(long, OnCluster(cluster, store, TOOLS, None))
        thread.join()
        assert (outcome.done, outcome.failed) == (0, 1)
        outcome = VirtualRunner(store, None, TOOLS).run(short, OnCluster(cluster, store, TOOLS, None))
        assert (outcome.done, outcome.failed) == (1, 0)
    (lost,) = [sample for sample in store.samples() if not sample.ok]
    assert "workers that carried this out were lost" in str(lost.error)
    assert lost.log is None
    assert remaining([*long, *short], store) == long


def test_a_scheduler_that_is_lost_ends_the_run_and_keeps_what_was_simulated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocelab.virtual.cluster.crew._CONNECT_S", 2)
    steps = plan(parse(LONG, "study.toml"))
    order = [steps[0], steps[-1]]
    store = store_in(tmp_path, order)
    workers = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0")
    with workers, reached(Named.parse(workers.scheduler_address)) as cluster:

        def lose() -> None:
            _until(lambda: bool(store.done_keys()))
            workers.close()

        thread = threading.Thread(target=lose)
        thread.start()
        with pytest.raises(FabricError, match=r"the scheduler at tcp://127.* was lost; what was simulated is kept"):
            VirtualRunner(store, None, TOOLS).run(order, OnCluster(cluster, store, TOOLS, None))
        thread.join()
    assert remaining(order, store) == order[1:]
    assert store.info.status == "interrupted"


def test_jobs_of_slurm_are_workers_and_are_gone_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if simulator().path is None:
        pytest.skip("rocelab-virtual is not there: make build")
    dask = pytest.importorskip("dask", reason="Dask is not installed: make setup")
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed: make setup")
    # Stands in for Slurm: a job is a process group of this machine. Its script is soon deleted.
    programs = {
        "sbatch": 'cp "$1" "$0.job"\n'
        'setsid sh "$0.job" > /dev/null 2>&1 &\n'
        'echo $! >> "$0.jobs"; echo "Submitted batch job $!"',
        "scancel": 'kill -- "-$1"',
    }
    for name, body in programs.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    steps = plan(parse(SMALL, "study.toml"))[:2]
    store = store_in(tmp_path, steps)
    job = {"cores": 1, "memory": "1GB", "interface": "lo"}
    with dask.config.set({"jobqueue.slurm": dask.config.get("jobqueue.slurm") | job}):
        with reached(Named.parse("slurm:1")) as cluster:
            assert cluster.has_jobs
            assert len(cluster.ask(steps)) == 1
            outcome = VirtualRunner(store, None, TOOLS).run(steps, OnCluster(cluster, store, TOOLS, None))
            assert (outcome.done, outcome.failed) == (2, 0)
        jobs = (tmp_path / "sbatch.jobs").read_text(encoding="utf-8").split()
        assert len(jobs) == 1
        _until(lambda: not psutil.pid_exists(int(jobs[0])))


def test_slurm_says_what_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed: make setup")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FabricError, match="there is no sbatch here"), reached(Named.parse("slurm")):
        pass
    (tmp_path / "sbatch").write_text("#!/bin/sh\n", encoding="utf-8")
    (tmp_path / "sbatch").chmod(0o755)
    with (
        pytest.raises(FabricError, match=r"cores.*Say it in ~/\.config/dask/jobqueue\.yaml"),
        reached(Named.parse("slurm")),
    ):
        pass


def test_a_cluster_that_is_not_there_is_said_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocelab.virtual.cluster.crew._CONNECT_S", 1)
    with (
        pytest.raises(FabricError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:9.*`dask scheduler` starts"),
        reached(Named.parse("tcp://127.0.0.1:9")),
    ):
        pass


def test_a_cluster_without_workers_says_how_to_start_one() -> None:
    with (
        distributed.LocalCluster(n_workers=0, dashboard_address=":0") as workers,
        reached(Named.parse(workers.scheduler_address)) as cluster,
        pytest.raises(FabricError, match=f"has no workers; start some with: dask worker {workers.scheduler_address}"),
    ):
        cluster.ask([])


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("tcp://node1:8786", Named("tcp://node1:8786")),
        ("node1:8786", Named("node1:8786")),
        ("slurm", Named(None, 10)),
        ("slurm:4", Named(None, 4)),
    ],
)
def test_a_cluster_is_an_address_or_slurm_with_a_number_of_jobs(words: str, named: Named) -> None:
    assert Named.parse(words) == named


@pytest.mark.parametrize("words", ["slurm:", "slurm:0", "slurm:many"])
def test_a_number_of_jobs_is_one_or_more(words: str) -> None:
    with pytest.raises(FabricError, match="the number of jobs is 1 or more, such as slurm:4"):
        Named.parse(words)
