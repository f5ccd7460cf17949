"""The NAS Parallel Benchmarks: our rocelab-nas (bench/nas/README.md), or NPB as its users have built it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from rocelab.tools import rocelab_mpi
from rocelab.tools.base import Executable, JobReading, JobRequest, Output, ToolError, Value, last_words

Program = Literal["is", "ft", "mg", "cg", "ep", "bt", "sp", "lu"]
ProblemClass = Literal["S", "W", "A", "B", "C", "D"]
SuiteName = Literal["rocelab", "npb"]

MAIN_METRIC: Final = ("time_s", "s")
_NAME: Final = "rocelab-nas"
_FORMAT: Final = 1
_SQUARES: Final = frozenset({"bt", "sp"})
_ANY: Final = frozenset({"ep", "lu"})
#: About how long class A takes on one core, and what other classes are to it: for planning only.
_CLASS_A_S: Final = {"is": 0.3, "ft": 2, "mg": 1, "cg": 1, "ep": 3, "bt": 40, "sp": 30, "lu": 30}
_CLASS_FACTOR: Final = {"S": 0.01, "W": 0.1, "A": 1, "B": 6, "C": 25, "D": 400}
#: Programs that do their work in every simulation, because what they send depends on it.
NEEDS_DATA: Final = frozenset({"is", "cg"})
#: Memory of all processes together in MiB, about, by class from S to D (docs/nas.md).
_MEMORY_MIB: Final[dict[str, tuple[float, ...]]] = {
    "is": (1, 12, 98, 392, 1536, 25_100),
    "ft": (12, 24, 384, 1536, 6144, 98_304),
    "mg": (1, 56, 437, 437, 3482, 27_650),
    "cg": (1, 8, 28, 197, 505, 9216),
    "bt": (1, 4, 53, 200, 768, 11_776),
    "sp": (1, 11, 53, 200, 768, 11_776),
    "lu": (1, 9, 55, 207, 785, 11_880),
}
_CLASSES: Final = "SWABCD"
#: Every process of IS counts keys of every value: so many bits have they, by class.
_KEY_BITS: Final = (11, 16, 19, 21, 23, 27)
#: Key of `metrics` of rocelab-nas to metric, unit and statistic.
_METRICS: Final = {
    "time_s": ("time_s", "s", "max"),
    "mops": ("mops", "Mop/s", "total"),
    "mpi_percent": ("mpi_percent", "%", "mean"),
    "mpi_percent_max": ("mpi_percent", "%", "max"),
}
#: The same for the lines that NPB prints at its end.
_LINES: Final = {"Time in seconds": "time_s", "Mop/s total": "mops", "Share in MPI %": "mpi_percent"}
_LINE: Final = re.compile(r"^ (\S.*?) *= +(\S.*?) *$", re.MULTILINE)


def ranks_problem(program: Program, ranks: int) -> str | None:
    """Why a program cannot use so many processes; None if it can."""
    if program in _SQUARES:
        if math.isqrt(ranks) ** 2 != ranks:
            return f"{program} runs on 1, 4, 9, 16, ... processes, and nodes x ranks_per_node is {ranks}"
    elif program not in _ANY and ranks & (ranks - 1):
        return f"{program} runs on 1, 2, 4, 8, ... processes, and nodes x ranks_per_node is {ranks}"
    return None


def memory_bytes(job: Nas) -> int:
    """About what the arrays of all processes take together. EP has 1 MiB on each."""
    by_class = _MEMORY_MIB.get(job.program)
    at = _CLASSES.index(job.problem_class)
    mebibytes = job.ranks if by_class is None else by_class[at]
    counts_bytes = (job.ranks - 1) * 4 * (1 << _KEY_BITS[at]) if job.program == "is" else 0
    return int(mebibytes * (1 << 20)) + counts_bytes


@dataclass(frozen=True)
class Nas:
    """A program with a class. It has no message size: what it reads and gives is that of the size None."""

    program: Program
    problem_class: ProblemClass
    ranks: int
    mpi: str
    folder: str | None
    suite: SuiteName = "rocelab"
    unverified: bool = False
    """Whether a result counts that was not verified: of a simulation, or of some of the iterations."""

    @property
    def test(self) -> str:
        """Named as NPB names its programs: ``ft.A``."""
        return f"{self.program}.{self.problem_class}"

    @property
    def tool(self) -> str:
        """``rocelab-nas`` or ``npb``."""
        return _NAME if self.suite == "rocelab" else self.suite

    @property
    def main_metric(self) -> tuple[str, str]:
        """See JobMethod."""
        return MAIN_METRIC

    @property
    def executables(self) -> tuple[Executable, ...]:
        """rocelab-nas for the MPI at hand, or NPB's program of this class (and number of ranks, before NPB 3.4)."""
        if self.suite == "rocelab":
            return (rocelab_mpi.program(self.mpi, self.folder, _NAME),)
        top = Path(self.folder or "").expanduser()
        names = [f"{self.test}.{end}" for end in ("x", self.ranks)]
        found = next((path for name in names for part in ("", "bin") if (path := top / part / name).is_file()), None)
        remedy = f"the study's suite_folder {self.folder} has neither {' nor '.join(names)}: build it in NPB"
        # Whatever it is called with, it runs.
        return (Executable(str(found or top / names[0]), remedy=remedy, tells_version=False),)

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:  # noqa: ARG002 -- the protocol's
        """See JobMethod."""
        return ranks_problem(self.program, ranks)

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:  # noqa: ARG002 -- as above
        """As on one core: what more of them save, a network costs."""
        return _CLASS_A_S[self.program] * _CLASS_FACTOR[self.problem_class]

    def command(self, request: JobRequest) -> Sequence[str]:
        """NPB's programs have no options."""
        if self.suite == "rocelab":
            return [self.executables[0].name, self.program, self.problem_class, "--json", *request.options]
        return [self.executables[0].name]

    def read(self, request: JobRequest, output: Output) -> JobReading:  # noqa: ARG002 -- as above
        """The JSON of rocelab-nas, or else the lines that NPB prints at its end."""
        lines = [line for line in output.stdout.splitlines() if line.startswith("{")]
        try:
            if lines:
                return self._read_json(json.loads(lines[-1]))
            return self._read_text(output)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ToolError(f"{self.tool} printed something else than its result: {error!r}") from error

    def _read_json(self, report: dict[str, Any]) -> JobReading:
        if report["format"] != _FORMAT:
            raise ToolError(f"{_NAME} reports in format {report['format']}, and this rocelab reads {_FORMAT}")
        self._compare(f"{report['benchmark']}.{report['class']}", int(report["ranks"]))
        if report["verification"] == "fail":
            wrong = [check["name"] for check in report["checks"] if not check["passed"]]
            return _wrong(f"{len(wrong)} of {len(report['checks'])} results, such as {wrong[0]}")
        if report["verification"] != "pass" and not self.unverified:
            return _unverified()
        return _right({key: float(report["metrics"][key]) for key in _METRICS})

    def _read_text(self, output: Output) -> JobReading:
        found = dict(_LINE.findall(output.stdout))
        completed = re.search(r"^ (\w+) Benchmark Completed", output.stdout, re.MULTILINE)
        if completed is None:
            raise ToolError(f"{self.tool} did not come to its end: {last_words(output)}")
        self._compare(f"{completed[1].lower()}.{found['Class']}", int(found["Total processes"]))
        if found["Verification"] == "UNSUCCESSFUL":
            return _wrong("NPB does not say which results")
        if found["Verification"] != "SUCCESSFUL":
            return _unverified()
        return _right({key: float(found[label]) for label, key in _LINES.items() if label in found})

    def _compare(self, test: str, ranks: int) -> None:
        if (test, ranks) != (self.test, self.ranks):
            raise ToolError(f"{self.test} on {self.ranks} processes was asked for; {test} on {ranks} was run")


def _wrong(what: str) -> JobReading:
    return JobReading({}, {None: f"the results differ from those that are published: {what}"})


def _unverified() -> JobReading:
    return JobReading({}, {None: "the results were not verified: not all iterations were run"})


def _right(metrics: dict[str, float]) -> JobReading:
    values = (Value(*_METRICS[key], number) for key, number in metrics.items())
    return JobReading({None: tuple(values)})


def wrong_test(suite: SuiteName, folder: str | None) -> tuple[str, str] | None:
    """What is wrong with where the programs are, as the key that it is about and the words; None if nothing is."""
    if suite == "npb" and folder is None:
        return "suite", "npb is not rocelab's: add suite_folder, the folder in which you have built it"
    return None
