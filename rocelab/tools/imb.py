"""The Intel MPI benchmarks (IMB), as a user has installed them. A test has the name of its benchmark: `PingPong`.

Bandwidth is computed from IMB's times and message rates: its own megabytes have had 2^20 and 10^6 bytes, by version.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab.tools import columns
from rocelab.tools.base import Executable, JobReading, JobRequest, Output, Value
from rocelab.tools.columns import Column, Dialect
from rocelab.tools.mpi_tests import main_metric, seconds
from rocelab.tools.osu import doubling_problem

DIALECT: Final = Dialect(
    heading=r"^\s*#bytes\b",
    heading_without_sizes=r"^\s*#repetitions\b",
    columns={
        r"#repetitions": Column(),
        r"t_min\[usec\]": Column("latency_us", "us", "min"),
        r"t_max\[usec\]": Column("latency_us", "us", "max"),
        r"t_avg\[usec\]": Column("latency_us", "us"),
        r"t_ovrl\[usec\]": Column("latency_us", "us"),
        r"t_pure\[usec\]": Column("pure_communication_us", "us"),
        r"t_CPU\[usec\]": Column("compute_us", "us"),
        r"overlap\[%\]": Column("overlap_percent", "%"),
        r"\bt\[usec\]": Column("latency_us", "us"),
        r"[Mm][Bb]ytes/sec": Column(),
        r"Msg/sec": Column("message_rate_per_s", "1/s"),
        r"defects": Column(check=True),
    },
)

#: How many messages of a process move in the time that IMB reports, both ways together.
_MESSAGES_EACH: Final = {"PingPong": 1, "PingPing": 1, "Sendrecv": 2, "Exchange": 4, "Uniband": 1, "Biband": 1}
_TRANSFERS: Final = tuple(_MESSAGES_EACH)
_COLLECTIVES: Final = (
    *("Bcast", "Reduce", "Allreduce", "Reduce_scatter", "Reduce_scatter_block", "Allgather", "Allgatherv"),
    *("Gather", "Gatherv", "Scatter", "Scatterv", "Alltoall", "Alltoallv"),
)
#: By program.
_BENCHMARKS: Final = {
    "IMB-MPI1": (*_TRANSFERS, *_COLLECTIVES, "Barrier"),
    "IMB-NBC": (*(f"I{name.lower()}" for name in _COLLECTIVES), "Ibarrier"),
}
TESTS: Final = tuple(name for names in _BENCHMARKS.values() for name in names)


@dataclass(frozen=True)
class Imb:
    """One benchmark of IMB."""

    test: str
    folder: str

    @property
    def tool(self) -> str:
        """Such as ``IMB-MPI1``."""
        return next(program for program, names in _BENCHMARKS.items() if self.test in names)

    @property
    def main_metric(self) -> tuple[str, str]:
        """See JobMethod."""
        return main_metric(self.test)

    @property
    def executables(self) -> tuple[Executable, ...]:
        """The program, in the folder or its bin."""
        top = Path(self.folder).expanduser()
        found = next((path for path in (top / self.tool, top / "bin" / self.tool) if path.is_file()), top / self.tool)
        return (Executable(str(found), remedy=f"the study's suite_folder {self.folder} has no {self.tool}"),)

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:
        """IMB is told powers of two."""
        if any(size_bytes & (size_bytes - 1) for size_bytes in sizes_bytes):
            return "it takes powers of two as sizes here"
        return doubling_problem(sizes_bytes) or (None if ranks > 1 else f"{self.test} needs 2 processes at least")

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:
        """See JobMethod."""
        return seconds(self.test.lower(), request, rate_mbps, ranks)

    def command(self, request: JobRequest) -> Sequence[str]:
        """All processes take part at once (`-npmin`), not first two and then four."""
        iterations = [] if request.iterations is None else ["-iter", str(request.iterations)]
        return [
            *(self.executables[0].name, self.test, "-npmin", "1000000"),
            *_sizes(request),
            *iterations,
            *request.options,
        ]

    def read(self, request: JobRequest, output: Output) -> JobReading:
        """The last table, and bandwidth from it."""
        if not request.sizes_bytes:
            reading = columns.read_without_sizes(output.stdout, DIALECT)
        else:
            reading = columns.read(output.stdout, DIALECT, request.sizes_bytes)
        columns.check_not_empty(self.tool, request, reading, output)
        values = {
            size: (*values, *(self._bandwidth(size, values) if size is not None else ()))
            for size, values in reading.values.items()
        }
        return dataclasses.replace(reading, values=values)

    def _bandwidth(self, size_bytes: int, values: Sequence[Value]) -> tuple[Value, ...]:
        if self.test not in _MESSAGES_EACH:
            return ()
        by_name = {(value.metric, value.statistic): value.value for value in values}
        if (rate_per_s := by_name.get(("message_rate_per_s", "mean"))) is not None:
            return (Value("bandwidth_mbps", "Mbps", "mean", rate_per_s * size_bytes * 8 / 1e6),)
        # What all processes have waited for: the slowest.
        time_us = by_name.get(("latency_us", "max")) or by_name.get(("latency_us", "mean"))
        if not time_us:
            return ()
        return (Value("bandwidth_mbps", "Mbps", "mean", _MESSAGES_EACH[self.test] * size_bytes * 8 / time_us),)


def _sizes(request: JobRequest) -> list[str]:
    """The exponents of the smallest and the largest size."""
    if not request.sizes_bytes:
        return []
    first, last = (size.bit_length() - 1 for size in (min(request.sizes_bytes), max(request.sizes_bytes)))
    return ["-msglog", f"{first}:{last}"]
