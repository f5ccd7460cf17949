"""Programs of one's own: their command lines, and what is read of what they print."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from rocelab.tools.base import Output, ToolError
from rocelab.tools.own import Metric, OwnMpi, OwnProgram, build

PROGRAM = OwnProgram(
    name="solver",
    command=("./solver-{mpi}", "{value}", "--options={opt}", '{"json": {value}}', "{unknown}"),
    metric=Metric("solve_s", "s", regex=r"took ([0-9.]+) s"),
    folder="/study",
    value="64",
    words={"opt": "{value}x"},
)


def good(stdout: str = "took 1.0 s\ntook 2.5 s\n", stderr: str = "", status: int = 0) -> Output:
    return Output(stdout, stderr, status, wall_s=4.0, cpu_s=3.0)


def of(**metric: str) -> OwnProgram:
    return dataclasses.replace(PROGRAM, metric=Metric("x", "1", **metric))  # type: ignore[arg-type]


def test_words_are_filled_and_paths_begin_in_the_studys_folder() -> None:
    method = OwnMpi(PROGRAM, "openmpi", "/mpi/bin/mpicc", ranks=4, nodes=2)
    argv = PROGRAM.filled(PROGRAM.command, {"mpi": "openmpi"})
    assert argv == ["/study/solver-openmpi", "64", "--options=64x", '{"json": 64}', "{unknown}"]
    assert method.test == "solver.64"
    assert method.executables[0].name == "/study/solver-openmpi"


def test_the_last_match_counts() -> None:
    value = PROGRAM.read(good())
    assert (value.metric, value.unit, value.value) == ("solve_s", "s", 2.5)


@pytest.mark.parametrize(
    ("metric", "said", "number"),
    [
        ({"json": "results.1.gbps"}, 'x\n{"results": [{}, {"gbps": 9.5}]}\nbye', 9.5),
        ({"json": "a"}, '{"a": 1}', 1.0),
        ({"clock": "wall"}, "", 4.0),
        ({"clock": "cpu"}, "", 3.0),
        ({"clock": "wall"}, "[1.0] [smpi_utils/INFO] Simulated time: 0.125 seconds.", 0.125),
    ],
)
def test_a_number_can_be_in_json_or_be_a_time(metric: dict[str, str], said: str, number: float) -> None:
    assert of(**metric).read(good(said)).value == number


@pytest.mark.parametrize(
    ("program", "output", "words"),
    [
        (PROGRAM, good(status=3, stderr="out of memory"), "ended with exit status 3: out of memory"),
        (PROGRAM, good("nothing"), "did not print its solve_s"),
        (of(regex="took"), good(), "whose first group is no number"),
        (of(json="a.b"), good('{"a": 1}'), "no number at a.b"),
        (of(json="a"), good("text"), "it printed no JSON object"),
        (dataclasses.replace(PROGRAM, proves="^verified$"), good(), "did not print what it has to, '\\^verified"),
        (of(clock="cpu"), good("Simulated time: 1.0 seconds"), "CPU time of a simulated program"),
    ],
)
def test_a_run_that_is_no_good_says_why(program: OwnProgram, output: Output, words: str) -> None:
    with pytest.raises(ToolError, match=words):
        program.read(output)


def test_building_runs_once_and_says_what_the_compiler_said(tmp_path: Path) -> None:
    once = (str(tmp_path), ("sh", "-c", "echo x >> built"))
    build([once, once])
    assert (tmp_path / "built").read_text() == "x\n"
    with pytest.raises(ToolError, match="ended with 1:\nno such header"):
        build([(str(tmp_path), ("sh", "-c", "echo no such header >&2; exit 1"))])
    with pytest.raises(ToolError, match="no-such-compiler"):
        build([(str(tmp_path), ("no-such-compiler",))])
