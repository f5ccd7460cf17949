"""A program that a study names: its command lines, what its output has to say, and where its result is.

Words in braces stand for what is not known before: `{value}` (of those that the study varies), `{mpi}`, `{mpicc}`,
`{nodes}`, `{ranks}`, `{server}`, `{client}`, `{port}`, `{interface}`, `{device}`, and those that a study gives itself.
Others stay as they are. A word that begins with `./` is in the folder of the study.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from rocelab.tools.base import Executable, JobReading, JobRequest, Output, ToolError, Value, describe_exit, last_words

Clock = Literal["wall", "cpu"]
_WORD: Final = re.compile(r"\{([a-z][a-z0-9_]*)\}")
_NUMBER: Final = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
#: A program that is built takes no longer.
_BUILD_LIMIT_S: Final = 600.0
#: What is taken for how long a program measures, for planning only.
_SECONDS: Final = 5.0
#: SimGrid says so at the end of a program.
SIMULATED: Final = re.compile(rf"Simulated time: ({_NUMBER})")


@dataclass(frozen=True)
class Metric:
    """The number that a program is about."""

    name: str
    unit: str
    regex: str | None = None
    """The first group of its last match."""
    json: str | None = None
    """Keys with dots between, in the last line of output that is a JSON object."""
    clock: Clock | None = None
    """Neither: how long it took, or the CPU time of all its processes, in seconds."""


@dataclass(frozen=True)
class OwnProgram:
    """One program with one value of those that are varied."""

    name: str
    command: tuple[str, ...]
    metric: Metric
    folder: str
    """Of the study."""
    value: str | None = None
    server: tuple[str, ...] | None = None
    """What is started first, on another node."""
    build: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    proves: str | None = None
    """What has to be in the output to count."""
    words: Mapping[str, str] = field(default_factory=dict)

    @property
    def test(self) -> str:
        """As samples state it."""
        return self.name if self.value is None else f"{self.name}.{self.value}"

    @property
    def main_metric(self) -> tuple[str, str]:
        """Its name and unit."""
        return self.metric.name, self.metric.unit

    def filled(self, argv: Iterable[str], words: Mapping[str, str]) -> list[str]:
        """A command line with everything in its place."""
        known = {**({} if self.value is None else {"value": self.value}), **self.words, **words}
        # Words of the study may have others in them.
        filled = (_fill(_fill(word, known), known) for word in argv)
        return [str(Path(self.folder, word).resolve()) if word.startswith(("./", "../")) else word for word in filled]

    def executables_for(self, words: Mapping[str, str]) -> tuple[Executable, ...]:
        """What it starts, and the files it needs."""
        remedy = f"it is the study's own, in {self.folder}"
        starts = [self.filled(argv, words)[0] for argv in (self.command, self.server) if argv]
        files = self.filled((each if each.startswith("/") else f"./{each}" for each in self.files), words)
        return (
            *(Executable(name, remedy=remedy, tells_version=False) for name in dict.fromkeys(starts)),
            *(Executable(name, remedy=remedy, tells_version=False, is_file=True) for name in files),
        )

    def built_by(self, words: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
        """A folder, and what has to run there before; None if nothing has."""
        return (self.folder, tuple(self.filled(self.build, words))) if self.build else None

    def read(self, output: Output) -> Value:
        """The result. ToolError if this was no good run."""
        if output.exit_status != 0:
            raise ToolError(f"{self.name} {describe_exit(output.exit_status)}: {last_words(output)}")
        said = output.stdout + output.stderr
        if self.proves is not None and not re.search(self.proves, said, re.MULTILINE):
            raise ToolError(f"{self.name} did not print what it has to, {self.proves!r}: {last_words(output)}")
        number = self._number(said, output)
        return Value(self.metric.name, self.metric.unit, "mean", number)

    def _number(self, said: str, output: Output) -> float:
        metric = self.metric
        if metric.clock is not None:
            simulated = [*SIMULATED.finditer(said)]
            if simulated and metric.clock == "cpu":
                raise ToolError("the CPU time of a simulated program is not known")
            return float(simulated[-1][1]) if simulated else output.wall_s if metric.clock == "wall" else output.cpu_s
        if metric.json is not None:
            return _from_json(metric.json, output.stdout)
        assert metric.regex is not None
        found = [*re.finditer(metric.regex, said, re.MULTILINE)]
        if not found:
            raise ToolError(f"{self.name} did not print its {metric.name}, {metric.regex!r}: {last_words(output)}")
        try:
            return float(found[-1][1])
        except (IndexError, ValueError, TypeError):
            raise ToolError(f"{metric.regex!r} found {found[-1][0]!r}, whose first group is no number") from None


def _fill(word: str, known: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: known.get(match[1], match[0]), word)


def _from_json(path: str, stdout: str) -> float:
    lines = [line for line in stdout.splitlines() if line.lstrip().startswith("{")]
    for text in (stdout, *reversed(lines)):
        try:
            found: Any = json.loads(text)
        except ValueError:
            continue
        try:
            for key in path.split("."):
                found = found[int(key)] if isinstance(found, list) else found[key]
            return float(found)
        except (KeyError, IndexError, TypeError, ValueError):
            raise ToolError(f"its JSON has no number at {path}") from None
    raise ToolError(f"it printed no JSON object: {stdout.strip()[-200:] or 'nothing'}")


@dataclass(frozen=True)
class OwnMpi:
    """An MPI program as a `rocelab.tools.base.JobMethod`."""

    program: OwnProgram
    kind: str
    """``openmpi``, ``mpich`` or ``smpi``."""
    mpicc: str
    ranks: int
    nodes: int

    @property
    def _words(self) -> dict[str, str]:
        return {"mpi": self.kind, "mpicc": self.mpicc, "ranks": str(self.ranks), "nodes": str(self.nodes)}

    @property
    def test(self) -> str:
        """See JobMethod."""
        return self.program.test

    @property
    def tool(self) -> str:
        """See JobMethod."""
        return self.program.name

    @property
    def main_metric(self) -> tuple[str, str]:
        """See JobMethod."""
        return self.program.main_metric

    @property
    def executables(self) -> tuple[Executable, ...]:
        """See JobMethod."""
        return self.program.executables_for(self._words)

    @property
    def built_by(self) -> tuple[str, tuple[str, ...]] | None:
        """What has to run before."""
        return self.program.built_by(self._words)

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:  # noqa: ARG002 -- the protocol's
        """Only the program knows."""
        return None

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:  # noqa: ARG002 -- as above
        """Only the program knows."""
        return _SECONDS

    def command(self, request: JobRequest) -> Sequence[str]:
        """See JobMethod."""
        return [*self.program.filled(self.program.command, self._words), *request.options]

    def read(self, request: JobRequest, output: Output) -> JobReading:  # noqa: ARG002 -- as above
        """See JobMethod."""
        return JobReading({None: (self.program.read(output),)})


def build(commands: Iterable[tuple[str, tuple[str, ...]]]) -> None:
    """Run what builds programs, each once, in its folder. ToolError with what the compiler said."""
    for folder, argv in dict.fromkeys(commands):
        try:
            done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=_BUILD_LIMIT_S, check=False)
        except (OSError, subprocess.SubprocessError) as error:
            raise ToolError(f"{' '.join(argv)}: {error}") from None
        if done.returncode != 0:
            raise ToolError(f"{' '.join(argv)} ended with {done.returncode}:\n{(done.stderr or done.stdout).rstrip()}")
