"""rocelab-mpi, our own suite of MPI benchmarks: one program for all tests, used as OMB is (bench/mpi/README.md)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocelab.programs import mpi_benchmarks, remedy
from rocelab.tools import columns, osu
from rocelab.tools.base import Executable, JobReading, JobRequest, Output, ToolError, Value
from rocelab.tools.mpi_tests import main_metric, seconds

_FORMAT: Final = 1
_NAME: Final = "rocelab-mpi"
_MB_PER_S_IN_MBPS: Final = 8.0
#: Key of `metrics` to metric, unit, statistic and factor.
_METRICS: Final = {
    "latency_us": ("latency_us", "us", "mean", 1.0),
    "latency_min_us": ("latency_us", "us", "min", 1.0),
    "latency_max_us": ("latency_us", "us", "max", 1.0),
    "t_us": ("latency_us", "us", "mean", 1.0),
    "t_avg_us": ("latency_us", "us", "mean", 1.0),
    "t_min_us": ("latency_us", "us", "min", 1.0),
    "t_max_us": ("latency_us", "us", "max", 1.0),
    "overall_us": ("latency_us", "us", "mean", 1.0),
    "compute_us": ("compute_us", "us", "mean", 1.0),
    "pure_us": ("pure_communication_us", "us", "mean", 1.0),
    "overlap_percent": ("overlap_percent", "%", "mean", 1.0),
    "bandwidth_mb_per_s": ("bandwidth_mbps", "Mbps", "mean", _MB_PER_S_IN_MBPS),
    "total_mb_per_s": ("bandwidth_mbps", "Mbps", "mean", _MB_PER_S_IN_MBPS),
    "per_rank_mb_per_s": ("rank_bandwidth_mbps", "Mbps", "mean", _MB_PER_S_IN_MBPS),
    "per_node_mb_per_s": ("node_throughput_mbps", "Mbps", "mean", _MB_PER_S_IN_MBPS),
    "message_rate_per_s": ("message_rate_per_s", "1/s", "mean", 1.0),
    "init_us": ("init_us", "us", "mean", 1.0),
    "init_min_us": ("init_us", "us", "min", 1.0),
    "init_max_us": ("init_us", "us", "max", 1.0),
    "contact_us": ("contact_us", "us", "mean", 1.0),
    "contact_max_us": ("contact_us", "us", "max", 1.0),
}
_SPREAD: Final = {"p50": "median", "p99": "p99"}


def program(mpi: str, folder: str | None, name: str = _NAME) -> Executable:
    """One of bench/ as it was built for an MPI: where the study says, $ROCELAB_MPI_BENCH, or the checkout's build."""
    if folder is not None:
        named = Path(folder).expanduser() / name
        return Executable(str(named), remedy=f"the study's suite_folder {folder} has no {name}")
    built = mpi_benchmarks() / mpi / name
    return Executable(str(built), remedy=remedy("make setup-programs build", "ROCELAB_MPI_BENCH"))


@dataclass(frozen=True)
class RocelabMpi:
    """One benchmark of rocelab-mpi."""

    test: str
    mpi: str
    folder: str | None
    tool: str = _NAME

    @property
    def main_metric(self) -> tuple[str, str]:
        """See JobMethod."""
        return main_metric(self.test)

    @property
    def executables(self) -> tuple[Executable, ...]:
        """rocelab-mpi for the MPI at hand."""
        return (program(self.mpi, self.folder),)

    def problem(self, sizes_bytes: Sequence[int], ranks: int) -> str | None:
        """It doubles the size, as OMB does."""
        return osu.doubling_problem(sizes_bytes) or osu.ranks_problem(self.test, ranks)

    def seconds(self, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:
        """See JobMethod."""
        return seconds(self.test, request, rate_mbps, ranks)

    def command(self, request: JobRequest) -> Sequence[str]:
        """OMB's options, and JSON."""
        return [self.executables[0].name, self.test, *osu.common_options(request), "--json"]

    def read(self, request: JobRequest, output: Output) -> JobReading:
        """Its JSON. The program has compared all data, and says so of every size."""
        values: dict[int | None, tuple[Value, ...]] = {}
        errors: dict[int | None, str] = {}
        try:
            for report in _reports(output.stdout):
                # 0 where there is none.
                size_bytes = int(report["size_bytes"]) if request.sizes_bytes else None
                if report["benchmark"] != self.test or size_bytes not in request.points:
                    continue
                if report["validation"] == "fail":
                    errors[size_bytes] = (
                        f"the data that was received was not right: {report['wrong_bytes']} wrong bytes"
                    )
                elif made := tuple(_values(report)):
                    values[size_bytes] = made
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ToolError(f"{_NAME} printed something else than its report: {error!r}") from error
        reading = JobReading(values, errors)
        columns.check_not_empty(_NAME, request, reading, output)
        return reading


def _reports(text: str) -> Iterator[dict[str, Any]]:
    """One for each line. Of a program that was stopped the last line may be half."""
    lines = text.split("\n")
    for line in lines[:-1]:
        # What an MPI library has to say comes on the same stream.
        if line.startswith("{"):
            report = json.loads(line)
            if report["format"] != _FORMAT:
                raise ToolError(f"{_NAME} reports in format {report['format']}, and this rocelab reads {_FORMAT}")
            yield report


def _values(report: dict[str, Any]) -> Iterator[Value]:
    for key, number in report["metrics"].items():
        if key in _METRICS:
            metric, unit, statistic, factor = _METRICS[key]
            yield Value(metric, unit, statistic, float(number) * factor)
    spread = report.get("spread")
    if spread is not None and spread["metric"] in _METRICS:
        metric, unit, _, factor = _METRICS[spread["metric"]]
        for key, statistic in _SPREAD.items():
            if key in spread:
                yield Value(metric, unit, statistic, float(spread[key]) * factor)
