"""rocelab-nas as a user meets it: the kernels on several numbers of ranks, what is printed, what is refused."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .conftest import Mpi

KERNELS = ("cg", "ep", "ft", "is", "mg")
#: NPB's lines at the end of a run, in its order.
NPB_LINES = (
    "Class",
    "Size",
    "Iterations",
    "Time in seconds",
    "Total processes",
    "Mop/s total",
    "Mop/s/process",
    "Operation type",
    "Verification",
    "Version",
)


def run(mpi: Mpi, ranks: int, *arguments: str, status: int = 0) -> dict[str, Any]:
    """What --json prints."""
    (found,) = mpi.samples(ranks, *arguments, status=status, program=mpi.nas)
    return found


def check_kernels(mpi: Mpi, ranks: int) -> None:
    for name in KERNELS:
        found = run(mpi, ranks, name, "S")
        assert found["verification"] == "pass", found
        assert found["checks"]
        assert all(check["passed"] for check in found["checks"]), found
        assert (found["benchmark"], found["class"], found["ranks"]) == (name, "S", ranks)
        assert found["iterations"] == found["iterations_of_class"]
        assert found["metrics"]["time_s"] == found["metrics"]["measured_s"] > 0
        assert found["metrics"]["mops"] > 0
        assert 0 <= found["metrics"]["mpi_percent"] <= found["metrics"]["mpi_percent_max"] <= 100


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_kernels_give_the_published_results(mpi: Mpi, ranks: int) -> None:
    check_kernels(mpi, ranks)


def test_the_kernels_run_on_a_single_rank(any_mpi: Mpi) -> None:
    check_kernels(any_mpi, 1)


@pytest.mark.parametrize(
    ("ranks", "name", "problem_class"),
    [
        (8, "mg", "S"),
        (8, "cg", "S"),  # a grid of ranks that is twice as wide as high
        (16, "mg", "S"),  # more ranks than points on the coarsest grids
        (64, "ft", "W"),  # more ranks than planes
    ],
)
def test_more_ranks_share_the_work_in_other_ways(any_mpi: Mpi, ranks: int, name: str, problem_class: str) -> None:
    assert run(any_mpi, ranks, name, problem_class)["verification"] == "pass"


def test_the_text_is_that_of_npb(any_mpi: Mpi) -> None:
    done = any_mpi.run(2, "cg", "S", program=any_mpi.nas)

    assert done.returncode == 0, done.stderr
    text = done.stdout
    found = re.findall(r"^ (\S.*?) += +(\S.*)$", text, re.MULTILINE)
    assert " CG Benchmark Completed.\n" in text
    assert [label for label, _ in found if label in NPB_LINES] == list(NPB_LINES)
    assert dict(found)["Verification"] == "SUCCESSFUL"
    assert dict(found)["Total processes"] == "2"


@pytest.mark.parametrize("name", ["is", "cg"])
def test_wrong_results_are_found_and_have_no_speed(mpi: Mpi, name: str) -> None:
    found = run(mpi, 2, name, "S", "--corrupt", status=1)

    assert found["verification"] == "fail"
    assert found["metrics"] == {}
    assert not any(check["passed"] for check in found["checks"])


def test_wrong_results_are_said_in_text_too(any_mpi: Mpi) -> None:
    done = any_mpi.run(2, "mg", "S", "--corrupt", program=any_mpi.nas)

    assert done.returncode == 1
    assert re.search(r"Verification +=\s+UNSUCCESSFUL", done.stdout)
    assert done.stderr.count("mg class S gives wrong results") == 1


def test_fewer_iterations_are_scaled_and_say_so(any_mpi: Mpi) -> None:
    found = run(any_mpi, 2, "cg", "W", "--iterations", "5")

    assert (found["iterations"], found["iterations_of_class"]) == (5, 15)
    assert found["verification"] == "off"
    assert found["checks"] == []
    assert found["metrics"]["time_s"] == pytest.approx(3 * found["metrics"]["measured_s"], rel=0.05)


def test_a_link_named_as_npb_names_its_programs_runs_that_one(any_mpi: Mpi, tmp_path: Path) -> None:
    link = tmp_path / "mg.S.x"
    link.symlink_to(any_mpi.nas)
    (found,) = any_mpi.samples(2, program=link)

    assert (found["benchmark"], found["class"]) == ("mg", "S")


@pytest.mark.parametrize(
    ("ranks", "arguments", "expected"),
    [
        (3, ["ft", "S"], "ft runs on 1, 2, 4, 8, ... ranks, not on 3"),
        (32, ["mg", "S", "--memory", "1M"], "mg class S on 32 ranks needs"),
        (
            2,
            ["ft", "D", "--memory", "1G"],
            "ft class D on 2 ranks needs 48.0 GiB for each rank, and there are 512.0 MiB",
        ),
        (2, ["is", "S", "--memory", "1"], "is class S on 2 ranks needs 0.4 MiB for each rank, and there are 0.0 MiB"),
        (1, ["is", "D", "--memory", "100G"], "too many keys for 1 rank: take more"),
        (2, ["ft", "Q"], "no class 'Q'; there are S, W, A, B, C and D"),
        (2, ["ft", "S", "--model"], "--model is for the build with SimGrid's smpicc, which simulates"),
        (2, ["gt", "S"], "no program 'gt'"),
        (2, ["ft"], "a program and a class are needed"),
        (2, [], "a program and a class are needed"),
        (2, ["ft", "S", "A"], "'A' is one too many"),
        (2, ["ft", "S", "--fast"], "no option --fast"),
        (2, ["ft", "S", "-i", "0"], "'0': --iterations is a number from 1"),
        (2, ["ft", "S", "-i", "7"], "ft class S has 6 iterations, fewer than --iterations 7"),
        (2, ["ft", "S", "--memory"], "--memory needs a value"),
    ],
)
def test_what_cannot_be_is_refused_once_before_anything_runs(
    any_mpi: Mpi, ranks: int, arguments: list[str], expected: str
) -> None:
    done = any_mpi.run(ranks, *arguments, program=any_mpi.nas)

    assert done.returncode == 2
    assert expected in done.stderr
    assert done.stderr.count("rocelab-nas: ") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("option", ["--help", "--version", "--list"])
def test_questions_need_no_mpirun(any_mpi: Mpi, option: str) -> None:
    done = subprocess.run([any_mpi.nas, option], capture_output=True, text=True, check=True)

    assert "rocelab-nas" in done.stdout or "ft " in done.stdout
