"""MPI and NAS tests of a study for real: our programs as they are, and under names of OMB and NPB with their output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.study.execution import Setting
from rocelab.study.jobs import JobExecutor
from rocelab.study.plan import plan
from rocelab.study.steps import JobStep
from rocelab.study.tests import small
from rocelab.tools import rocelab_mpi

pytestmark = pytest.mark.fabric

TEXT = """\
schema = 1
id = "real"
title = "MPI for real"
repetitions = 1

[tcp]
congestion_control = ["cubic"]

[[link]]
id = "slow"
kind = "bridge"
rate_mbps = 100

[[test]]
level = "mpi"
test = "bw"
sizes_bytes = [4096, 16384]
iterations = 3
warmup = 1

[test.variants]
tcp = ["openmpi-ob1"]
soft-roce = ["mpich-ucx"]
soft-iwarp = ["mpich-ofi", "openmpi-ofi"]

[[test]]
level = "mpi"
test = "alltoall"
ranks_per_node = 2
sizes_bytes = { from = 1024, to = 65536, factor = 8 }
iterations = 3
warmup = 1

[test.variants]
soft-iwarp = ["mpich-ofi", "openmpi-ofi"]

[[test]]
level = "mpi"
suite = "osu"
suite_folder = "FOLDER"
test = "allreduce"
ranks_per_node = 2
mapping = "node"
sizes_bytes = { from = 4, to = 16 }
iterations = 10
options = ["-f"]

[test.variants]
tcp = ["openmpi-ucx"]

[[test]]
level = "nas"
programs = ["is"]
classes = ["S"]

[test.variants]
tcp = ["openmpi-ob1"]
soft-roce = ["mpich-ucx"]

[[test]]
level = "nas"
suite = "npb"
suite_folder = "FOLDER"
programs = ["ft"]
classes = ["S"]

[test.variants]
tcp = ["openmpi-ob1"]
"""


@pytest.fixture(scope="module")
def executor() -> Iterator[JobExecutor]:
    study = small.study(TEXT)
    try:
        made = emulated.up([link.profile() for link in study.link])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made as fabric:
        yield JobExecutor(Setting(fabric, NamespaceLauncher(fabric)))


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[JobStep]:
    folder = tmp_path_factory.mktemp("omb")
    program = rocelab_mpi.program("openmpi", None)
    (folder / "osu_allreduce").symlink_to(program.name)
    (folder / "ft.S.x").symlink_to(rocelab_mpi.program("openmpi", None, "rocelab-nas").name)
    found = [step for step in plan(small.study(TEXT.replace("FOLDER", str(folder)))) if isinstance(step, JobStep)]
    for executable in {executable for step in found for executable in step.executables}:
        if executable.path is None:
            pytest.skip(f"{executable.name} is not there: {executable.advice}")
    return found


def test_bandwidth_of_every_interconnect_is_that_of_the_link(executor: JobExecutor, steps: list[JobStep]) -> None:
    for step in (each for each in steps if each.test_name == "bw"):
        done = executor.execute(step, None)
        assert done.reading is not None
        assert done.error is None or set(done.reading.values) == {4096, 16384}, done.error
        values = [v.value for v in done.reading.values[16384] if (v.metric, v.statistic) == ("bandwidth_mbps", "mean")]
        assert values[0] < 105, "no faster than the link: it does not go through memory"


def test_four_processes_exchange_the_right_data_over_iwarp(executor: JobExecutor, steps: list[JobStep]) -> None:
    chosen = [each for each in steps if each.test_name == "alltoall"]
    assert {each.variant for each in chosen} == {"mpich-ofi@cubic", "openmpi-ofi@cubic"}
    for step in chosen:
        done = executor.execute(step, None)
        assert done.reading is not None, done.error
        assert set(done.reading.values) == {1024, 8192, 65536}, done.error
        assert not done.reading.errors


def test_output_of_omb(executor: JobExecutor, steps: list[JobStep], tmp_path: Path) -> None:
    step = next(each for each in steps if each.test_name == "allreduce")
    done = executor.execute(step, tmp_path / "log")
    assert done.reading is not None
    assert set(done.reading.values) == {4, 8, 16}, done.error
    assert {value.statistic for value in done.reading.values[4]} == {"mean", "min", "max"}
    assert "# Size" in (tmp_path / "log").read_text()


def test_nas_programs_are_verified_and_say_their_time_in_mpi(executor: JobExecutor, steps: list[JobStep]) -> None:
    chosen = [each for each in steps if each.test_name == "is.S"]
    assert {each.interconnect for each in chosen} == {"tcp", "soft-roce"}
    for step in chosen:
        done = executor.execute(step, None)
        assert done.reading is not None
        assert not done.reading.errors
        assert None in done.reading.values, done.error
        values = {(value.metric, value.statistic): value.value for value in done.reading.values[None]}
        assert values["time_s", "max"] > 0
        assert 10 < values["mpi_percent", "mean"] <= 100, "keys of 4 bytes go around over 100 Mbps"


def test_output_of_npb(executor: JobExecutor, steps: list[JobStep], tmp_path: Path) -> None:
    step = next(each for each in steps if each.test_name == "ft.S")
    done = executor.execute(step, tmp_path / "log")
    assert done.reading is not None
    assert None in done.reading.values, done.error
    assert {value.metric for value in done.reading.values[None]} == {"time_s", "mops", "mpi_percent"}
    assert " FT Benchmark Completed." in (tmp_path / "log").read_text()
