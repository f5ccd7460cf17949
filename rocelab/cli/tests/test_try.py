"""``rocelab try``, as a person uses it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.cli.tests.test_own_programs import PROGRAM
from rocelab.launch import mpi
from rocelab.results import find_run


@pytest.fixture
def program(tmp_path: Path) -> Path:
    mpicc = mpi.own("mpich").mpiexec.with_name("mpicc")
    if not mpicc.exists():
        pytest.skip("MPICH is missing: make setup-programs")
    built = tmp_path / "jacobi"
    subprocess.run([mpicc, "-O2", "-o", built, PROGRAM / "jacobi.c", "-lm"], check=True)
    return built


@pytest.mark.fabric
def test_an_mpi_program_is_run_over_tcp_and_soft_roce(program: Path, tmp_path: Path) -> None:
    kept = ["--results", str(tmp_path / "results"), "--repetitions", "1"]
    result = ["--regex", "solved in ([0-9.]+) s", "--metric", "solve_s"]
    done = CliRunner().invoke(app, ["try", *kept, *result, "--", "mpirun", "-n", "2", str(program), "64", "50"])
    assert done.exit_code == 0, done.output
    store = find_run(tmp_path / "results", "latest")
    found = {(each.interconnect, each.test, each.metric, each.ok) for each in store.samples()}
    assert found == {("tcp", "jacobi", "solve_s", True), ("soft-roce", "jacobi", "solve_s", True)}
    assert "programs of the study" in done.output


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["/bin/true"], "is linked with neither Open MPI nor MPICH"),
        (["mpirun", "-n", "2"], "no program was named"),
        (["mpirun", "--hostfile", "hosts", "./a.out"], "it takes -n N, and not --hostfile"),
        (["./no-such-program"], "there is no program ./no-such-program"),
    ],
)
def test_what_cannot_be_tried_is_said(command: list[str], words: str) -> None:
    done = CliRunner().invoke(app, ["try", "--", *command])
    assert done.exit_code == 1
    assert words in done.output
