"""Makes samples of what a step left behind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rocelab.results import ParamValue, RunInfo, Sample, StepKey
from rocelab.study.clouds import CloudExecution
from rocelab.study.execution import Execution
from rocelab.study.jobs import JobExecution
from rocelab.study.meshes import MeshExecution
from rocelab.study.steps import CloudStep, JobStep, MeshStep, PairStep, Step
from rocelab.tools.base import CPU_TEST, MAIN_METRIC, CpuTime, Reading, Value
from rocelab.tools.mesh import MESH_METRIC

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


def samples_of_pair(
    step: PairStep, execution: Execution, startup: CpuTime | None, circumstances: Circumstances
) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    main = MAIN_METRIC[step.test]

    def sample(params: Mapping[str, ParamValue], value: Value | None, error: str | None = None) -> Sample:
        return _sample(
            step, execution, circumstances, key=step.key, main_metric=main, params=params, value=value, error=error
        )

    reading = execution.reading
    if reading is None:
        return (sample({"messages": step.messages}, None, execution.error or "no reason is known"),)
    params: dict[str, ParamValue] = {"messages": step.messages, "active_s": reading.active_s, **reading.params}
    if step.test != CPU_TEST:
        values = list(reading.values)
    else:
        params.update({value.metric: value.value for value in reading.values if value.metric == "bandwidth_mbps"})
        values = list(_cpu_values(execution, reading, startup, params))
        if not values:
            return (
                sample(params, None, "the CPU time of this measurement cannot be told apart from that of its start"),
            )
    return tuple(sample(params, value) for value in values)


def samples_of_job(step: JobStep, execution: JobExecution, circumstances: Circumstances) -> tuple[Sample, ...]:
    """A sample for every value of every size; one without a value for each size that was not measured."""
    params: dict[str, ParamValue] = {
        "nodes": step.nodes,
        "ranks": step.ranks,
        "ranks_per_node": step.ranks_per_node,
        "mapping": step.mapping,
        "mpi": step.mpi.title,
    }
    if step.request.iterations is not None:
        params["iterations"] = step.request.iterations
    made: list[Sample] = []
    for key in step.keys:
        values = execution.reading.values.get(key.size_bytes, ())
        error = execution.reading.errors.get(key.size_bytes)
        if error is None and not values:
            error = execution.error or "no reason is known"
        made += [
            _sample(
                step,
                execution,
                circumstances,
                key=key,
                main_metric=step.method.main_metric,
                params=params,
                value=value,
                error=error,
            )
            for value in (values if error is None else (None,))
        ]
    return tuple(made)


def samples_of_mesh(step: MeshStep, execution: MeshExecution, circumstances: Circumstances) -> tuple[Sample, ...]:
    """Samples of the whole mesh and of every node; exactly one, without a value, if the step failed."""
    params: dict[str, ParamValue] = {
        "connections": step.connections,
        "parallel": step.parallel,
        "depth": step.depth,
        "measured_s": step.measured_s,
        "margin_s": step.margin_s,
    }

    def sample(value: Value | None, error: str | None = None) -> Sample:
        return _sample(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=MESH_METRIC,
            params=params,
            value=value,
            error=error,
        )

    reading = execution.reading
    if reading is None:
        return (sample(None, execution.error or "no reason is known"),)
    params |= {"idle_connections": reading.idle_connections}
    params |= {"start_s": round(reading.start_s, 3), "cpu_s": round(reading.cpu_s, 3)}
    sent = reading.sent_mbps
    values = [
        Value(*MESH_METRIC, "total", sum(sent)),
        Value("wire_mbps", "Mbps", "total", reading.wire_mbps),
        *(
            Value("node_throughput_mbps", "Mbps", statistic, value)
            for statistic, value in (("mean", sum(sent) / len(sent)), ("min", min(sent)), ("max", max(sent)))
        ),
        *(
            Value(metric, "Mbps", f"node{at}", value)
            for metric, by_node in (("sent_mbps", sent), ("received_mbps", reading.received_mbps))
            for at, value in enumerate(by_node)
        ),
    ]
    return tuple(sample(value) for value in values)


def samples_of_cloud(step: CloudStep, execution: CloudExecution, circumstances: Circumstances) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    reading = execution.reading
    params: dict[str, ParamValue] = {**step.method.params, **(reading.params if reading else {})}
    values: tuple[Value | None, ...] = reading.values if reading else (None,)
    return tuple(
        _sample(
            step,
            execution,
            circumstances,
            key=step.key,
            main_metric=step.method.main_metric,
            params=params,
            value=value,
            error=None if value else execution.error or "no reason is known",
        )
        for value in values
    )


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
    execution: Execution | JobExecution | MeshExecution | CloudExecution,
    circumstances: Circumstances,
    *,
    key: StepKey,
    main_metric: tuple[str, str],
    params: Mapping[str, ParamValue],
    value: Value | None,
    error: str | None = None,
) -> Sample:
    run = circumstances.run
    return Sample(
        study=run.study,
        run=run.id,
        fabric=run.fabric,
        **key._asdict(),
        params=params,
        metric=value.metric if value else main_metric[0],
        unit=value.unit if value else main_metric[1],
        statistic=value.statistic if value else "median",
        value=value.value if value else None,
        ok=error is None,
        error=error,
        tool=step.tool,
        tool_version=circumstances.tool_version,
        command=execution.command,
        started_at=execution.started_at,
        duration_s=round(execution.duration_s, 6),
        log=circumstances.log,
        order=circumstances.order,
    )
