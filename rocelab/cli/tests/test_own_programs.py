"""A program of one's own on the emulated and the virtual fabric, from one file; test_hosts.py has it on hosts."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.launch import mpi
from rocelab.results import Sample, find_run

PROGRAM = Path(__file__).parent / "program"


def short(folder: Path) -> Path:
    """The study with one value and one MPI, in a folder of its own."""
    shutil.copytree(PROGRAM, folder / "program")
    path = folder / "program" / "jacobi.toml"
    text = path.read_text()
    for old, new in (
        ("repetitions = 2", "repetitions = 1"),
        ("values = [128, 512]", "values = [64]"),
        ('["openmpi-ob1", "mpich-ofi"]', '["mpich-ofi"]'),
        ('["openmpi-ucx", "mpich-ucx"]', '["mpich-ucx"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def run(tmp_path: Path, *options: str) -> tuple[list[Sample], str]:
    results = tmp_path / "results"
    done = CliRunner().invoke(app, ["run", str(short(tmp_path)), "--results", str(results), *options])
    assert done.exit_code == 0, done.output
    return find_run(results, "latest").samples(), done.output


@pytest.mark.fabric
@pytest.mark.skipif(not mpi.own("mpich").mpiexec.exists(), reason="MPICH is missing: make setup-programs")
def test_it_is_built_and_measured_over_tcp_and_soft_roce(tmp_path: Path) -> None:
    samples, said = run(tmp_path)
    assert {(each.interconnect, each.test, each.metric) for each in samples} == {
        ("tcp", "jacobi.64", "solve_s"),
        ("soft-roce", "jacobi.64", "solve_s"),
    }
    assert "programs of the study" in said


def check_qperf(samples: list[Sample]) -> None:
    expected = {(name, f"round-trip.{size}") for name in ("tcp", "soft-roce") for size in (8, 4096)}
    assert {(each.interconnect, each.test) for each in samples if each.ok} == expected, [each.error for each in samples]
    assert all(each.metric == "latency_us" and each.value is not None and each.value > 0 for each in samples)


@pytest.mark.fabric
@pytest.mark.skipif(shutil.which("qperf") is None, reason="qperf is missing: apt-get install qperf")
def test_a_server_and_a_client_that_are_installed_are_measured(tmp_path: Path) -> None:
    words = ["run", str(PROGRAM / "qperf.toml"), "--results", str(tmp_path), "--no-report"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "soft-roce verbs, repetition 1" in done.output
    check_qperf(find_run(tmp_path, "latest").samples())


@pytest.mark.skipif(shutil.which("smpirun") is None, reason="SimGrid is missing: apt-get install libsimgrid-dev")
def test_its_time_on_other_adapters_is_predicted(tmp_path: Path) -> None:
    samples, said = run(tmp_path, "--fabric", "virtual")
    assert [each.interconnect for each in samples] == [
        "infiniband-qdr",
        "infiniband-fdr",
        "roce-10g",
        "roce-40g",
        "roce-100g",
    ]
    # 200 sweeps exchange edges twice: at least a microsecond each, and nothing like seconds.
    assert all(each.value is not None and 2e-4 < each.value < 5 for each in samples)
    assert "jacobi.64" in said


def test_a_failed_build_says_what_the_compiler_said(tmp_path: Path) -> None:
    path = short(tmp_path)
    path.write_text(path.read_text().replace("{mpicc}", "false"))
    done = CliRunner().invoke(app, ["run", str(path), "--results", str(tmp_path / "results")])
    assert done.exit_code == 1
    assert "a program of the study cannot be built" in done.output
    assert not (tmp_path / "results").exists()
