"""What every benchmark program is to the rest of rocelab: a method that measures one thing at one size.

A method builds the command lines of its two ends and reads what they printed. It starts nothing: the runner does,
so a method is tested with recorded output alone.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from rocelab import programs
from rocelab.devices import DevicePort

Test = Literal["latency", "bandwidth", "bidirectional-bandwidth", "cpu-use"]
TESTS: tuple[Test, ...] = ("latency", "bandwidth", "bidirectional-bandwidth", "cpu-use")

#: The test whose samples are CPU time and nothing else: the others are too short to tell it apart
#: from a start.
CPU_TEST: Test = "cpu-use"

#: The value that a test is about; also the metric of a sample that failed.
MAIN_METRIC: Mapping[Test, tuple[str, str]] = {
    "latency": ("latency_us", "us"),
    "bandwidth": ("bandwidth_mbps", "Mbps"),
    "bidirectional-bandwidth": ("bandwidth_mbps", "Mbps"),
    "cpu-use": ("cpu_client_cores", "cores"),
}


#: Parameters of a reading: the congestion control that the connection had at either end, by the
#: program's own words.
CONTROL_PARAMS: Mapping[str, str] = {
    "client": "congestion_control_client",
    "server": "congestion_control_server",
}

#: The suites of MPI benchmarks: rocelab's own, the OSU micro-benchmarks and the Intel MPI
#: benchmarks.
SuiteName = Literal["rocelab", "osu", "imb"]


class ToolError(Exception):
    """A program's output is not what a good run prints. The text says what is wrong, for a person."""


class DisturbedError(ToolError):
    """Other work kept a program from measuring, as it says itself: the same may be measured again."""


@dataclass(frozen=True, slots=True)
class Executable:
    """A program that has to be there: its name (or path) and what to do when it is not."""

    name: str
    package: str | None = None
    """The Debian package that has it."""
    remedy: str | None = None
    """How to get it where no package has it."""
    tells_version: bool = True
    """``--version`` makes it say its version."""
    is_read: bool = False
    """It is a file that others read, such as a jar, and not run itself."""
    known_version: str | None = None
    """Where it cannot be asked."""
    is_file: bool = False
    """It is a file that a program reads on each node."""

    @property
    def path(self) -> str | None:
        """Where it is, or None."""
        if self.is_read or self.is_file:
            return self.name if Path(self.name).is_file() else None
        return shutil.which(self.name)

    @property
    def advice(self) -> str:
        """What to do when it is missing."""
        if self.package is not None:
            return f"apt-get install {self.package}"
        return self.remedy or "install it"


@functools.cache
def own_program(name: str) -> Executable:
    """One of rocelab's own programs: urxe, rocelab-sock or rocelab-virtual."""
    found, remedy = programs.own(name)
    return Executable(found, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Request:
    """One step, as a method needs it. `messages` is how many go each way in the timed region."""

    size_bytes: int
    messages: int
    server_address: str
    client_interface: str
    server_interface: str
    port: int
    client_device: DevicePort | None = None
    server_device: DevicePort | None = None
    """The RDMA devices that are there without urxe."""


@dataclass(frozen=True, slots=True)
class Output:
    """What one end printed, and how it ended (negative: killed by that signal)."""

    stdout: str
    stderr: str
    exit_status: int
    wall_s: float = 0.0
    cpu_s: float = 0.0
    """User and system seconds of it and all it started."""


@dataclass(frozen=True, slots=True)
class Value:
    """One measured value of a step."""

    metric: str
    unit: str
    statistic: str
    value: float


@dataclass(frozen=True, slots=True)
class CpuTime:
    """User and system seconds of both ends."""

    client_s: float
    server_s: float


@dataclass(frozen=True, slots=True)
class Reading:
    """What a good run says. `active_s` and `moved_bytes` (both ways together) are what CPU time is related to."""

    values: tuple[Value, ...]
    moved_bytes: int
    active_s: float
    cpu: CpuTime | None = None
    """CPU time within `active_s`, from programs that report it."""
    params: Mapping[str, str | int | float | bool] = field(default_factory=dict)


class Method(Protocol):
    """How one program measures one test in one variant."""

    @property
    def tool(self) -> str:
        """The program's name, as samples state it."""

    @property
    def executables(self) -> tuple[Executable, ...]:
        """Everything it needs on both ends."""

    @property
    def messages_min(self) -> int:
        """Fewer than this the program does not take, or cannot sum up."""

    @property
    def size_max_bytes(self) -> int | None:
        """The largest message that the program takes; None if the study format's own limit is smaller."""

    @property
    def message_us(self) -> float:
        """About what a message costs besides its bytes, for planning only."""

    @property
    def overhead_s(self) -> float:
        """About how long a step takes besides its timed region, for planning only."""

    @property
    def cpu_from(self) -> Literal["report", "processes", "nothing"]:
        """Where CPU time comes from.

        `report`: the program tells that of its timed region. `processes`: that of the whole processes, less what
        starting them costs. `nothing`: it cannot be told.
        """

    @property
    def head_start_s(self) -> float:
        """How long the client sleeps once it is connected, before it begins. 0: not at all.

        Such a program can be started early and sleep while others are measured, with its server held.
        """

    @property
    def server_ends(self) -> bool:
        """The server ends by itself after one client; else it has to be stopped."""

    def server(self, request: Request) -> Sequence[str]:
        """The command line of the end that is started first and listens on `request.port`."""

    def client(self, request: Request) -> Sequence[str]:
        """The command line of the end that connects and reports."""

    def read(self, request: Request, client: Output, server: Output) -> Reading:
        """The values, or ToolError if this was not a good run."""


@dataclass(frozen=True, slots=True)
class JobRequest:
    """What one start of an MPI program is to measure. None: what the program does by itself."""

    sizes_bytes: tuple[int, ...]
    """Message sizes; none for a test whose result is not about a message, such as a barrier."""
    iterations: int | None = None
    warmup: int | None = None
    options: tuple[str, ...] = ()

    @property
    def points(self) -> tuple[int | None, ...]:
        """What has values of its own: each size, or None where there is no size."""
        return self.sizes_bytes or (None,)


@dataclass(frozen=True, slots=True)
class JobReading:
    """What an MPI program printed, by message size in bytes (None: of a test without sizes).

    A size that is missing was not measured to its end.
    """

    values: Mapping[int | None, tuple[Value, ...]]
    errors: Mapping[int | None, str] = field(default_factory=dict)
    """Sizes whose data was wrong, and what was said about it."""


class JobMethod(Protocol):
    """How an MPI program measures one test at any number of sizes in one start. It does not know how it is started.

    A test without sizes (`mpi_tests.has_sizes`) is asked for none.
    """

    @property
    def test(self) -> str:
        """The test, as studies and samples state it."""

    @property
    def tool(self) -> str:
        """The program's name, as samples state it."""

    @property
    def main_metric(self) -> tuple[str, str]:
        """The metric that the test is about, and its unit."""

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program."""

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:
        """Why it cannot measure these sizes with so many processes; None if it can."""

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:
        """About how long it measures, for planning only."""

    def command(self, request: JobRequest) -> Sequence[str]:
        """The command line of each process."""

    def read(self, request: JobRequest, output: Output) -> JobReading:
        """What was measured, also by a run that did not end well. ToolError if nothing can be said about any size."""


@functools.cache
def package_version(package: str) -> str | None:
    """Version of an installed Debian package; None where there is no dpkg or no such package."""
    try:
        done = subprocess.run(
            ["dpkg-query", "--show", "--showformat=${Version}", package],  # noqa: S607 -- wherever the system has it
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


@functools.cache
def printed_version(*argv: str) -> str | None:
    """The first line that a program prints about its version; None if it cannot be run."""
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else None


def check_exit(client: Output, server: Output) -> None:
    """Raise ToolError with the last words of an end that did not succeed. The server's reason comes first."""
    for end, output in (("server", server), ("client", client)):
        if output.exit_status != 0:
            raise ToolError(f"the {end} {describe_exit(output.exit_status)}: {last_words(output)}")


def describe_exit(exit_status: int) -> str:
    """``ended with exit status 1`` or ``was killed by signal 9``."""
    if exit_status < 0:
        return f"was killed by signal {-exit_status}"
    return f"ended with exit status {exit_status}"


def last_words(output: Output, lines: int = 3) -> str:
    """The end of what a program said, errors first, on one line."""
    said = output.stderr.strip() or output.stdout.strip()
    return " / ".join(line.strip() for line in said.splitlines()[-lines:] if line.strip()) or "it said nothing"
