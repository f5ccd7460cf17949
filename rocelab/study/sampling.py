"""Makes samples of what a step left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rocelab.results import ParamValue, RunInfo, Sample
from rocelab.study.execution import Execution
from rocelab.study.plan import LEVEL, Step
from rocelab.tools.base import CPU_TEST, MAIN_METRIC, CpuTime, Reading, Value

_MIB = 1 << 20
#: The CPU time of a start varies by a few milliseconds; what is left of a shorter region would be that.
_REGION_MIN_S = 0.005


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the samples of one step share besides the step itself."""

    run: RunInfo
    order: int
    tool_version: str
    log: str | None


def samples_of(
    step: Step, execution: Execution, startup: CpuTime | None, circumstances: Circumstances
) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    reading = execution.reading
    if reading is None:
        error = execution.error or "no reason is known"
        return (_sample(step, execution, circumstances, {"messages": step.messages}, None, error=error),)
    params: dict[str, ParamValue] = {"messages": step.messages, "active_s": reading.active_s, **reading.params}
    if step.test != CPU_TEST:
        values = list(reading.values)
    else:
        params.update({value.metric: value.value for value in reading.values if value.metric == "bandwidth_mbps"})
        values = list(_cpu_values(execution, reading, startup, params))
        if not values:
            error = "the CPU time of this measurement cannot be told apart from that of its start"
            return (_sample(step, execution, circumstances, params, None, error=error),)
    return tuple(_sample(step, execution, circumstances, params, value) for value in values)


def _cpu_values(
    execution: Execution, reading: Reading, startup: CpuTime | None, params: dict[str, ParamValue]
) -> Iterator[Value]:
    """CPU time of both ends, as cores in use and by MiB moved. Notes in `params` where it comes from."""
    used = reading.cpu
    if used is not None:
        params["cpu_from"] = "report of the program"
    elif startup and execution.client and execution.server and reading.active_s >= _REGION_MIN_S:
        params["cpu_from"] = "processes less start"
        params["cpu_client_process_s"] = execution.client.cpu_s
        params["cpu_server_process_s"] = execution.server.cpu_s
        params["cpu_client_start_s"] = startup.client_s
        params["cpu_server_start_s"] = startup.server_s
        used = CpuTime(
            max(0.0, execution.client.cpu_s - startup.client_s), max(0.0, execution.server.cpu_s - startup.server_s)
        )
    if used is None:
        return
    for end, cpu_s in (("client", used.client_s), ("server", used.server_s)):
        yield Value(f"cpu_{end}_cores", "cores", "mean", cpu_s / reading.active_s)
        yield Value(f"cpu_{end}_us_per_mib", "us/MiB", "mean", cpu_s * 1e6 / (reading.moved_bytes / _MIB))


def _sample(
    step: Step,
    execution: Execution,
    circumstances: Circumstances,
    params: Mapping[str, ParamValue],
    value: Value | None,
    *,
    error: str | None = None,
) -> Sample:
    run = circumstances.run
    return Sample(
        study=run.study,
        run=run.id,
        fabric=run.fabric,
        link=step.link.id,
        interconnect=step.interconnect,
        level=LEVEL,
        test=step.test,
        variant=step.variant,
        size_bytes=step.size_bytes,
        params=params,
        metric=value.metric if value else MAIN_METRIC[step.test][0],
        unit=value.unit if value else MAIN_METRIC[step.test][1],
        statistic=value.statistic if value else "median",
        value=value.value if value else None,
        repetition=step.repetition,
        ok=error is None,
        error=error,
        tool=step.method.tool,
        tool_version=circumstances.tool_version,
        command=execution.command,
        started_at=execution.started_at,
        duration_s=round(execution.duration_s, 6),
        log=circumstances.log,
        order=circumstances.order,
    )
