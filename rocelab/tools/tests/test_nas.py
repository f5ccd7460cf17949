"""What is read of rocelab-nas and of NPB, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from rocelab.tools.base import JobRequest, Output, ToolError
from rocelab.tools.nas import Nas, ranks_problem

ASKED = JobRequest(())
CG = Nas("cg", "S", 4, "mpich", None)
REPORT: dict[str, Any] = {
    "format": 1,
    "benchmark": "cg",
    "class": "S",
    "ranks": 4,
    "verification": "pass",
    "checks": [{"name": "zeta", "passed": True}],
    "metrics": {"time_s": 0.25, "measured_s": 0.25, "mops": 120.5, "mpi_percent": 40.0, "mpi_percent_max": 45.0},
}
#: The end of a run of NPB 3.3: what its print_results writes.
NPB = """


 NAS Parallel Benchmarks 3.3 -- CG Benchmark

 Size:       1400
 Benchmark completed
 VERIFICATION SUCCESSFUL
 Zeta is     0.8597177507865E+01
 Error is    0.1033104665906E-14


 CG Benchmark Completed.
 Class           =                        S
 Size            =                     1400
 Iterations      =                       15
 Time in seconds =                     0.25
 Total processes =                        4
 Compiled procs  =                        4
 Mop/s total     =                   266.62
 Mop/s/process   =                    66.66
 Operation type  =           floating point
 Verification    =               SUCCESSFUL
 Version         =                    3.3.1
 Compile date    =              01 Jan 2026
"""


def said(stdout: str, status: int = 0) -> Output:
    return Output(stdout, "mpirun: one rank said so", status)


def report(**changes: Any) -> Output:
    return said("a library's greeting\n" + json.dumps(REPORT | changes) + "\n")


def values(nas: Nas, output: Output) -> dict[tuple[str, str, str], float]:
    reading = nas.read(ASKED, output)
    assert not reading.errors
    return {(value.metric, value.unit, value.statistic): value.value for value in reading.values[None]}


def test_json_of_rocelab_nas() -> None:
    assert values(CG, report()) == {
        ("time_s", "s", "max"): 0.25,
        ("mops", "Mop/s", "total"): 120.5,
        ("mpi_percent", "%", "mean"): 40.0,
        ("mpi_percent", "%", "max"): 45.0,
    }


def test_text_of_npb() -> None:
    npb = dataclasses.replace(CG, suite="npb", folder="/opt/npb/bin")
    assert npb.tool == "npb"
    assert values(npb, said(NPB)) == {("time_s", "s", "max"): 0.25, ("mops", "Mop/s", "total"): 266.62}


@pytest.mark.parametrize(
    "output",
    [
        report(verification="fail", checks=[{"name": "zeta", "passed": False}], metrics={}),
        said(NPB.replace("               SUCCESSFUL", "             UNSUCCESSFUL")),
    ],
)
def test_wrong_results_have_no_values(output: Output) -> None:
    reading = CG.read(ASKED, output)
    assert reading.values == {}
    assert "differ from those that are published" in reading.errors[None]


@pytest.mark.parametrize(
    "output", [report(verification="off"), said(NPB.replace("               SUCCESSFUL", "            NOT PERFORMED"))]
)
def test_what_was_not_verified_does_not_count(output: Output) -> None:
    reading = CG.read(ASKED, output)
    assert reading.values == {}
    assert "not verified" in reading.errors[None]


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (report(ranks=2), "cg.S on 4 processes was asked for; cg.S on 2 was run"),
        (report(benchmark="mg"), "mg.S on 4 was run"),
        (said(NPB.replace("=                        S", "=                        W")), "cg.W on 4 was run"),
        (report(format=2), "format 2"),
        (report(metrics={}), "something else than its result"),
        (said("{half a line"), "something else than its result"),
        (said("rocelab-nas: no class 'Q'", 2), "did not come to its end: mpirun: one rank said so"),
        (said(NPB.replace(" Total processes", " Total people")), "something else than its result"),
    ],
)
def test_other_output_is_an_error(output: Output, expected: str) -> None:
    with pytest.raises(ToolError, match=expected):
        CG.read(ASKED, output)


def test_commands(tmp_path: Path) -> None:
    assert CG.command(ASKED)[1:] == ["cg", "S", "--json"]
    npb = dataclasses.replace(CG, suite="npb", folder=str(tmp_path))
    assert npb.command(ASKED) == [str(tmp_path / "cg.S.x")]
    assert "neither cg.S.x nor cg.S.4" in npb.executables[0].advice
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cg.S.4").touch()
    assert npb.command(ASKED) == [str(tmp_path / "bin" / "cg.S.4")], "as NPB 3.3 names it"
    assert not npb.executables[0].tells_version, "asked for its version, it would run"


@pytest.mark.parametrize(
    ("program", "good", "bad"),
    [("ft", (1, 2, 64), (3, 6, 9)), ("bt", (1, 4, 9), (2, 8)), ("ep", (1, 3, 7), ()), ("lu", (1, 6, 8), ())],
)
def test_numbers_of_processes(program: Any, good: tuple[int, ...], bad: tuple[int, ...]) -> None:
    assert [ranks_problem(program, ranks) for ranks in good] == [None] * len(good)
    assert all(f"{program} runs on 1, " in (ranks_problem(program, ranks) or "") for ranks in bad)
