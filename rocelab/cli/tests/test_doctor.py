"""`rocelab doctor`: that it sees what is there and what is not, and that its exit status means something."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

import rocelab.doctor
from rocelab.cli.doctor import doctor
from rocelab.doctor import Check, fit
from rocelab.fabric.base import FabricError

app = typer.Typer()
app.command()(doctor)

GOOD = Check("programs", "iperf3", "ok", "iperf3 3.12", required=True)
NOTE = Check("machine", "other work", "note", "core 0 90 %", "Something else is running")
OPTIONAL = Check("useful", "chromium", "missing", "not there", "apt-get install chromium", package="chromium")
NEEDED = Check("programs", "qperf", "missing", "not there", "apt-get install qperf", required=True, package="qperf")


@pytest.fixture
def finds(monkeypatch: pytest.MonkeyPatch) -> list[Check]:
    checks: list[Check] = []
    monkeypatch.setattr(rocelab.doctor, "examine", lambda: checks)
    monkeypatch.setenv("COLUMNS", "140")
    return checks


def test_only_what_the_quick_study_needs_decides_the_exit_status(finds: list[Check]) -> None:
    finds += [GOOD, NOTE, OPTIONAL]
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert "The quick study can run here: rocelab run studies/quick.toml" in result.stdout
    finds.append(NEEDED)
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 1
    assert "The quick study cannot run here yet. Missing: qperf" in result.stdout
    assert "What is missing comes with: apt-get install chromium qperf" in result.stdout
    assert "-> apt-get install qperf" in result.stdout
    assert "missing (optional)" in result.stdout


def test_json_says_the_same(finds: list[Check]) -> None:
    finds += [GOOD, NEEDED]
    result = CliRunner().invoke(app, ["--json"])
    assert result.exit_code == 1
    said = json.loads(result.stdout)
    assert said["fit"] is False
    assert [(check["name"], check["state"]) for check in said["checks"]] == [("iperf3", "ok"), ("qperf", "missing")]


def test_a_missing_program_names_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    checks = {check.name: check for check in rocelab.doctor._programs()}
    assert checks["ib_send_lat"].state == "missing"
    assert checks["ib_send_lat"].package == "perftest"
    assert checks["ib_send_lat"].advice == "apt-get install perftest"
    assert checks["iperf3"].required
    assert not fit(checks.values())


def test_a_machine_refusing_namespaces_is_told_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise FabricError("cannot make an emulated fabric: making namespaces: Operation not permitted\nRun with sudo.")

    monkeypatch.setattr("rocelab.fabric.emulated.up", refuse)
    (check,) = [check for check in rocelab.doctor._fabric() if check.name == "emulated fabric"]
    assert (check.state, check.required, check.advice) == ("missing", True, "Run with sudo.")
    assert check.found.endswith("Operation not permitted")


@pytest.mark.parametrize(
    ("said", "state", "found"),
    [
        ("mpiexec (Open MPI) 5.0.5", "ok", "5.0.5, "),
        ("mpiexec (Open MPI) 4.1.4", "note", "is Open MPI 4.1.4; 5 and newer can be used"),
        ("Some MPI 1.0", "note", "it says 'Some MPI 1.0' of itself"),
    ],
)
def test_the_mpi_of_the_system_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, state: str, found: str
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(rocelab.doctor._system_mpi()) == []
    (tmp_path / "mpiexec").write_text(f"#!/bin/sh\necho '{said}'\n")
    (tmp_path / "mpiexec").chmod(0o755)
    (check,) = rocelab.doctor._system_mpi()
    assert check.state == state
    assert found in check.found


@pytest.mark.fabric
def test_this_machine_is_examined_for_real() -> None:
    groups = {check.group for check in rocelab.doctor.examine()}
    assert groups == {"machine", "fabric", "programs", "useful", "MPI", "RDMA devices"}
