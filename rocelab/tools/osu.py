"""The OSU micro-benchmarks (OMB), as a user has installed them, and every suite that is used and prints as they do.

OMB has a program for each test, `osu_latency`, `osu_bcast` and so on. The name of a test
is that of its program, without `osu_`.
MB/s are 10^6 bytes a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab.tools import columns
from rocelab.tools.base import Executable, JobReading, JobRequest, Output, Value
from rocelab.tools.columns import Column, Dialect
from rocelab.tools.mpi_tests import main_metric, seconds

#: Where the programs of an OMB are below the folder that a study names: a build, or what
#: `make install` made.
_FOLDERS: Final = tuple(
    f"{top}{kind}"
    for top in ("", "mpi/", "c/mpi/", "libexec/osu-micro-benchmarks/mpi/")
    for kind in (
        *("", "pt2pt/", "collective/", "one-sided/", "startup/", "congestion/"),
        # Builds from 7.1 on.
        *("pt2pt/standard/", "pt2pt/persistent/", "pt2pt/congestion/", "pt2pt/partitioned/"),
        *(f"collective/{form}/" for form in ("blocking", "non_blocking", "persistent", "neighborhood")),
    )
)

DIALECT: Final = Dialect(
    heading=r"^#\s*Size\b",
    heading_without_sizes=r"^#\s*(?:Avg Latency|Latency|Overall) ?\(us\)",
    columns={
        r"Avg Latency ?\(us\)": Column("latency_us", "us"),
        r"Min Latency ?\(us\)": Column("latency_us", "us", "min"),
        r"Max Latency ?\(us\)": Column("latency_us", "us", "max"),
        r"Multi-threaded Latency ?\(us\)": Column("latency_us", "us"),
        r"P50 Tail (?:Lat|Latency) ?\(us\)": Column("latency_us", "us", "p50"),
        r"P90 Tail (?:Lat|Latency) ?\(us\)": Column("latency_us", "us", "p90"),
        r"P99 Tail (?:Lat|Latency) ?\(us\)": Column("latency_us", "us", "p99"),
        r"P\d+ Tail \S+ ?\S*": Column(),
        r"Latency ?\(us\)": Column("latency_us", "us"),
        r"Overall ?\(us\)": Column("latency_us", "us"),
        r"Compute ?\(us\)": Column("compute_us", "us"),
        r"Pure Comm\. ?\(us\)": Column("pure_communication_us", "us"),
        r"Overlap ?\(%\)": Column("overlap_percent", "%"),
        r"Coll\. ?Init ?\(us\)|MPI_Test ?\(us\)|MPI_Wait ?\(us\)": Column(),
        r"(?:Bandwidth|BW) ?\(MB/s\)|MB/s": Column("bandwidth_mbps", "Mbps", factor=8.0),
        r"Messages/s": Column("message_rate_per_s", "1/s"),
        r"Iterations": Column(),
        r"Validation": Column(check=True),
    },
)


@dataclass(frozen=True)
class Osu:
    """One program of OMB."""

    test: str
    folder: str

    @property
    def tool(self) -> str:
        """Such as ``osu_latency``."""
        return f"osu_{self.test}"

    @property
    def main_metric(self) -> tuple[str, str]:
        """See JobMethod."""
        return main_metric(self.test)

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program, wherever it is below the folder."""
        top = Path(self.folder).expanduser()
        found = next((path for part in _FOLDERS if (path := top / part / self.tool).is_file()), top / self.tool)
        remedy = f"the study's suite_folder {self.folder} has no {self.tool}: name the folder of an OMB with this test"
        return (Executable(str(found), remedy=remedy),)

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:
        """OMB doubles the size."""
        return doubling_problem(sizes_bytes) or ranks_problem(self.test, ranks)

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:
        """See JobMethod."""
        return seconds(self.test, request, rate_mbps, ranks)

    def command(self, request: JobRequest) -> Sequence[str]:
        """Sizes from the smallest to the largest; what lies between and was not asked for is read over."""
        return [self.executables[0].name, *common_options(request)]

    def read(self, request: JobRequest, output: Output) -> JobReading:
        """Its table."""
        return read(self.tool, request, output)


def common_options(request: JobRequest) -> list[str]:
    """Sizes and iterations as OMB is told them."""
    options = ["-m", f"{min(request.sizes_bytes)}:{max(request.sizes_bytes)}"] if request.sizes_bytes else []
    if request.iterations is not None:
        options += ["-i", str(request.iterations)]
    if request.warmup is not None:
        options += ["-x", str(request.warmup)]
    return [*options, *request.options]


def doubling_problem(sizes_bytes: Sequence[int]) -> str | None:
    """Why a suite that doubles the size cannot measure these sizes."""
    smallest_bytes = min(sizes_bytes, default=1)
    for size_bytes in sizes_bytes:
        factor, rest = divmod(size_bytes, smallest_bytes)
        if rest or factor & (factor - 1):
            return f"it doubles the size from {smallest_bytes} bytes on, which never gives {size_bytes}"
    return None


#: Tests of two processes, and of pairs.
_TWO: Final = frozenset(
    {
        *(
            "latency",
            "bw",
            "bibw",
            "latency_persistent",
            "bw_persistent",
            "bibw_persistent",
            "latency_mt",
            "latency_mp",
        ),
        *("overlap_send", "overlap_recv", "PingPong", "PingPing"),
    }
)
_PAIRS: Final = frozenset({"mbw_mr", "multi_lat", "Uniband", "Biband"})


def ranks_problem(test: str, ranks: int) -> str | None:
    """Why a test cannot be run by so many processes."""
    if (test in _TWO or test.startswith(("put_", "get_", "acc_", "fop_", "cas_"))) and ranks != 2:
        return f"{test} is between 2 processes, and nodes x ranks_per_node is {ranks}"
    if test in _PAIRS and ranks % 2:
        return f"{test} is between pairs of processes, and nodes x ranks_per_node is {ranks}"
    return None if ranks > 1 or test == "init" else f"{test} needs 2 processes at least"


def read(tool: str, request: JobRequest, output: Output) -> JobReading:
    """The values of a table as OMB prints it."""
    if not request.sizes_bytes:
        reading = columns.read_without_sizes(output.stdout, DIALECT)
        if (found := _INIT.search(output.stdout)) is not None:
            reading = JobReading({None: tuple(_init_values(found))})
    else:
        reading = columns.read(output.stdout, DIALECT, request.sizes_bytes)
    columns.check_not_empty(tool, request, reading, output)
    return reading


#: osu_init has a sentence in place of a table.
_INIT: Final = re.compile(r"^nprocs: \d+, min: ([\d.]+) ms, max: ([\d.]+) ms, avg: ([\d.]+) ms", re.MULTILINE)
_US_PER_MS: Final = 1e3


def _init_values(found: re.Match[str]) -> Iterator[Value]:
    for statistic, number in zip(("min", "max", "mean"), found.groups(), strict=True):
        yield Value("init_us", "us", statistic, float(number) * _US_PER_MS)
