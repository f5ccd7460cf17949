"""Carries out steps of the network level, and makes samples of them: what programs say, and what both ends cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from typing_extensions import override

from rocelab.results import ParamValue, Sample
from rocelab.study.execution import (
    NO_REASON,
    Circumstances,
    Execution,
    Measured,
    Setting,
    StepExecutor,
    sample_of,
    until_undisturbed,
)
from rocelab.study.pair_runner import PairReading, PairRunner
from rocelab.study.startup import StartupCosts, StartupError
from rocelab.study.steps import PairStep
from rocelab.tools.base import CPU_TEST, MAIN_METRIC, CpuTime, Value

_MIB = 1 << 20
#: The CPU time of a start varies by a few milliseconds; what is left of a shorter region would be
#: that.
_REGION_MIN_S = 0.005
#: What a start costs; or why that is not known; or None, where it does not matter.
Startup = CpuTime | StartupError | None


class PairExecutor(StepExecutor[PairStep]):
    """Runs steps on the first two nodes of a fabric: the client on the first, the server on the second."""

    @override
    def __init__(self, setting: Setting) -> None:
        client, server = setting.fabric.nodes[0], setting.fabric.nodes[1]
        launcher = setting.launcher
        self._runner = PairRunner(client, server, launcher, lambda node, link: (launcher.core(node, link),))
        pairs = [step for step in setting.steps if isinstance(step, PairStep)]
        size_max_bytes = max((step.size_bytes for step in pairs if step.test == CPU_TEST), default=1)
        self._startups = StartupCosts(self.cpu_times, setting.fabric.links, size_max_bytes)

    @override
    def measure(self, step: PairStep, log: Path, circumstances: Circumstances) -> Measured:
        execution = self.execute(step, log)
        pace: float | None = None
        startup: Startup = None
        if execution.reading is not None:
            pace = execution.reading.pace(step)
            if step.test == CPU_TEST and step.method.cpu_from == "processes":
                try:
                    startup = self._startups.of(step)
                except StartupError as error:
                    startup = error
        return Measured(_samples(step, execution, startup, circumstances), execution.hung, pace)

    @override
    def samples(
        self, step: PairStep, execution: Execution[PairReading], circumstances: Circumstances
    ) -> tuple[Sample, ...]:
        return _samples(step, execution, None, circumstances)

    @property
    @override
    def is_waiting(self) -> bool:
        return self._runner.is_waiting

    @override
    def prepare(self, step: PairStep, log: Path | None) -> None:
        self._runner.prepare(step, log)

    @override
    def execute(self, step: PairStep, log: Path | None) -> Execution[PairReading]:
        return until_undisturbed(lambda: self._runner.execute(step, log))

    @override
    def close(self) -> None:
        self.withdraw()

    @override
    def withdraw(self) -> None:
        self._runner.withdraw()

    def cpu_times(self, step: PairStep) -> CpuTime:
        """The CPU time of both ends of a step, from their start to their end."""
        execution = self.execute(step, None)
        if execution.reading is None:
            raise StartupError(execution.error or NO_REASON)
        return CpuTime(execution.reading.client.cpu_s, execution.reading.server.cpu_s)


def _samples(
    step: PairStep, execution: Execution[PairReading], startup: Startup, circumstances: Circumstances
) -> tuple[Sample, ...]:
    """A sample for every value; exactly one, without a value, if the step failed."""
    main = MAIN_METRIC[step.test]

    def sample(params: Mapping[str, ParamValue], value: Value | None, error: str | None = None) -> Sample:
        return sample_of(
            step, execution, circumstances, key=step.key, main_metric=main, params=params, value=value, error=error
        )

    found = execution.reading
    if found is None:
        return (sample({"messages": step.messages}, None, execution.error or NO_REASON),)
    reading = found.report
    params: dict[str, ParamValue] = {"messages": step.messages, "active_s": reading.active_s, **reading.params}
    if step.test != CPU_TEST:
        values = list(reading.values)
    else:
        params.update({value.metric: value.value for value in reading.values if value.metric == "bandwidth_mbps"})
        values = list(_cpu_values(found, startup, params))
        if not values:
            why = "the CPU time of this measurement cannot be told apart from that of its start"
            if isinstance(startup, StartupError):
                why = f"{why}, which could not be measured: {startup}"
            return (sample(params, None, why),)
    return tuple(sample(params, value) for value in values)


def _cpu_values(found: PairReading, startup: Startup, params: dict[str, ParamValue]) -> Iterator[Value]:
    """CPU time of both ends, as cores in use and by MiB moved. Notes in `params` where it comes from."""
    reading = found.report
    used = reading.cpu
    if used is not None:
        params["cpu_from"] = "report of the program"
    elif isinstance(startup, CpuTime) and reading.active_s >= _REGION_MIN_S:
        params["cpu_from"] = "processes less start"
        params["cpu_client_process_s"] = found.client.cpu_s
        params["cpu_server_process_s"] = found.server.cpu_s
        params["cpu_client_start_s"] = startup.client_s
        params["cpu_server_start_s"] = startup.server_s
        used = CpuTime(max(0.0, found.client.cpu_s - startup.client_s), max(0.0, found.server.cpu_s - startup.server_s))
    if used is None:
        return
    for end, cpu_s in (("client", used.client_s), ("server", used.server_s)):
        yield Value(f"cpu_{end}_cores", "cores", "mean", cpu_s / reading.active_s)
        yield Value(f"cpu_{end}_us_per_mib", "us/MiB", "mean", cpu_s * 1e6 / (reading.moved_bytes / _MIB))
