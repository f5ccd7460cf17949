"""Carries out the steps of a study of the virtual fabric, as many at a time as there are processors, or by a crew.

What comes of a step does not depend on when it runs, so samples are written in the order of the plan, and a run of the
same study has the same samples.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any, Protocol

from rocelab.results import MESH_TEST, SLOWDOWN_METRIC, ParamValue, RunStatus, RunStore, Sample, StepKey
from rocelab.study.execution import now
from rocelab.study.runner import Outcome, Watcher
from rocelab.tools.base import ToolError, Value
from rocelab.virtual.flow_results import Told, told, write_table
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.scenario import scenario
from rocelab.virtual.schema import MANY_NODES, is_collective
from rocelab.virtual.simulator import simulate
from rocelab.virtual.smpi.jobs import JobSimulator
from rocelab.virtual.smpi.steps import SmpiStep
from rocelab.virtual.steps import VirtualStep
from rocelab.virtual.under_way import UnderWay

#: Counters that are samples of their own, so that claims can be about them.
_COUNTERS = ("dropped_packets", "pauses", "notifications", "marked_packets")
#: Parts of an outcome that are tables.
_TABLES = ("flows", "cables")


class SimulationWatcher(Watcher, Protocol):
    """What is also told how far a simulation is."""

    def progressed(self, step: VirtualStep | FlowsStep, simulated_ns: int, end_ns: int) -> None:
        """So much time has been simulated, of so much at the most."""


AnyStep = VirtualStep | FlowsStep | SmpiStep
Found = tuple[tuple[Sample, ...], str | None]
"""The samples of a step, and what went wrong."""


class Job(Protocol):
    """A step that is carried out, or will be."""

    def result(self) -> Found:
        """Wait for what comes of it."""

    def done(self) -> bool:
        """Whether that is there."""


class Crew(Protocol):
    """What carries out the steps of a run, several at a time."""

    def begin(self, step: AnyStep, order: int) -> Job:
        """Carry a step out when there is room for it. Those that were given first go first."""

    def stop(self) -> None:
        """End what is under way, and begin no more."""


@dataclass(frozen=True, slots=True)
class _Done:
    outcome: dict[str, Any] | None
    error: str | None
    started_at: str
    duration_s: float


class _Processors:
    """As many steps at a time as this machine has processors for us."""

    def __init__(self, runner: VirtualRunner) -> None:
        self._runner = runner
        self._pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def begin(self, step: AnyStep, order: int) -> Job:
        return self._pool.submit(self._runner.perform, step, order)

    def stop(self) -> None:
        self._runner.stop()
        self._pool.shutdown(cancel_futures=True)


class VirtualRunner:
    """One run of a study. Without a watcher nobody is told; unless logged, packet simulations write no files."""

    def __init__(
        self,
        store: RunStore,
        watcher: SimulationWatcher | None,
        versions: Mapping[str, str],
        *,
        logged: bool = True,
        memory: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        """Programs that need much memory run while they have ``memory``; by default, one of this run at a time."""
        self._store = store
        self._watcher = watcher
        self._versions = versions
        self._logged = logged
        self._lock = threading.Lock()
        self._under_way = UnderWay()
        self._jobs = JobSimulator(store, versions, self._under_way, memory)

    def run(self, steps: Sequence[AnyStep], crew: Crew | None = None) -> Outcome:
        """Carry out the steps, on the processors of this machine or by a crew.

        Sets the status of the run, also when it is interrupted.
        """
        failed = 0
        status: RunStatus = "interrupted"
        first_order = self._store.next_order()
        crew = crew or _Processors(self)
        left: deque[Job] = deque()
        try:
            left.extend(crew.begin(step, first_order + index) for index, step in enumerate(steps))
            for step in steps:
                samples, error = left[0].result()
                self._store.append(*samples)
                left.popleft()
                failed += error is not None
                if self._watcher is not None:
                    with self._lock:
                        self._watcher.ended(step, error)
            status = "incomplete" if failed else "complete"
        finally:
            self._keep_done(left)
            crew.stop()
            self._store.set_status(status, ended_at=now())
            self._store.close()
        return Outcome(len(steps) - failed, failed)

    def _keep_done(self, left: Iterable[Job]) -> None:
        """Store what is there of steps behind one that is not: an interruption loses nothing that was simulated."""
        for job in left:
            # Those that the interruption itself ended have failed, and are done again.
            with contextlib.suppress(Exception):
                samples, error = job.result() if job.done() else ((), "it is under way")
                if error is None:
                    self._store.append(*samples)

    def _log(self, step: VirtualStep | FlowsStep, order: int, suffix: str) -> Path:
        return self._store.logs / f"{order:05}-{step.name}{suffix}"

    def stop(self) -> None:
        """End the simulations that are under way, and start no more."""
        self._under_way.stop()

    def perform(self, step: AnyStep, order: int) -> Found:
        """Carry out a step. Gives its samples, which it does not store, and what went wrong."""
        if self._watcher is not None:
            with self._lock:
                self._watcher.started(step)
        if isinstance(step, SmpiStep):
            return self._jobs.execute(step, order)
        done = self._simulate(step, order)
        return tuple(self._sample(step, order, done, *each) for each in _told(step, done)), done.error

    def failed(self, step: AnyStep, order: int, error: str) -> Found:
        """The samples of a step that came to no end, and left no log."""
        if isinstance(step, SmpiStep):
            samples = self._jobs.failed(step, order, error)
        else:
            done = _Done(None, error, now(), 0.0)
            samples = tuple(self._sample(step, order, done, *each) for each in _told(step, done))
        return tuple(dataclasses.replace(sample, log=None) for sample in samples), error

    def _simulate(self, step: VirtualStep | FlowsStep, order: int) -> _Done:
        def progressed(simulated_ns: int, end_ns: int) -> None:
            if self._watcher is not None:
                with self._lock:
                    self._watcher.progressed(step, simulated_ns, end_ns)

        started_at, started_s = now(), time.monotonic()
        asked = scenario(step)
        is_recorded = self._logged and isinstance(step, VirtualStep) and step.test.tap is not None
        pcap = self._log(step, order, ".pcap") if is_recorded else None
        outcome: dict[str, Any] | None = None
        try:
            outcome = simulate(asked, pcap=pcap, progressed=progressed, among=self._under_way)
            error = outcome["problem"]
        except ToolError as failure:
            error = str(failure)
        if self._logged:
            self._write_logs(step, order, asked, outcome)
        return _Done(outcome if error is None else None, error, started_at, time.monotonic() - started_s)

    def _write_logs(
        self, step: VirtualStep | FlowsStep, order: int, asked: dict[str, Any], outcome: dict[str, Any] | None
    ) -> None:
        brief = None
        if outcome is not None:
            # A row for each flow and cable: other programs read them as tables.
            brief = {name: value for name, value in outcome.items() if name not in _TABLES}
            if isinstance(step, FlowsStep):
                for name in _TABLES:
                    write_table(self._log(step, order, f"-{name}.csv"), outcome[name])
        text = json.dumps({"scenario": asked, "outcome": brief}, indent=1)
        self._log(step, order, ".json").write_text(text + "\n", encoding="utf-8")

    def _sample(
        self, step: VirtualStep | FlowsStep, order: int, done: _Done, key: StepKey, value: Value | str
    ) -> Sample:
        run = self._store.info
        outcome = done.outcome
        params: dict[str, ParamValue] = {"seed": step.seed, "host": step.host}
        if isinstance(step, VirtualStep) and step.test.file is not None:
            params["file"], params["file_sha256"] = step.test.file.path, step.test.file.digest
        if outcome is not None:
            params["simulated_us"] = outcome["simulated_ns"] / 1000
            params["packet_hops"] = outcome["packet_hops"]
            params["series"] = bool(outcome["series"])
        log = str(self._log(step, order, ".json").relative_to(self._store.path)) if self._logged else None
        metric, unit = _main_metric(step)
        measured = None if isinstance(value, str) else value
        return Sample(
            study=run.study,
            run=run.id,
            fabric=run.fabric,
            **key._asdict(),
            params=params,
            metric=measured.metric if measured else metric,
            unit=measured.unit if measured else unit,
            statistic=measured.statistic if measured else "median",
            value=measured.value if measured else None,
            ok=measured is not None,
            error=value if isinstance(value, str) else None,
            tool=step.tool,
            tool_version=self._versions.get(step.tool, "unknown"),
            command=step.tool if log is None else f"jq .scenario {log} | {step.tool}",
            started_at=done.started_at,
            duration_s=round(done.duration_s, 6),
            log=log,
            order=order,
        )


def _told(step: VirtualStep | FlowsStep, done: _Done) -> Iterator[Told]:
    """What a simulation gave, or why it gave nothing."""
    if done.outcome is None:
        yield step.key, done.error or "there is no outcome"
    elif isinstance(step, FlowsStep):
        yield from told(step, done.outcome)
    else:
        yield from ((step.key, value) for value in _values(step, done.outcome))


def _main_metric(step: VirtualStep | FlowsStep) -> tuple[str, str]:
    if isinstance(step, FlowsStep):
        return SLOWDOWN_METRIC, "times"
    if step.test.test == "latency":
        return "latency_us", "us"
    if is_collective(step.test.test):
        return "collective_us", "us"
    if step.test.test in MANY_NODES and step.test.level == "network":
        return "throughput_mbps", "Mbps"
    return "bandwidth_mbps", "Mbps"


def _values(step: VirtualStep, outcome: dict[str, Any]) -> list[Value]:
    metric, unit = _main_metric(step)
    counters = [Value(name, "packets", "total", float(outcome[name])) for name in _COUNTERS]
    longest = Value("queue_max_bytes", "bytes", "max", float(outcome["queue_max_bytes"]))
    if metric == "latency_us":
        times_us = [time_ns / 1000 for time_ns in outcome["latencies_ns"]]
        # perftest says what is typical; IMB and OMB, how long all iterations took by their number.
        latency = (
            Value(metric, unit, "median", median(times_us))
            if step.test.level == "network"
            else Value(metric, unit, "mean", mean(times_us))
        )
        return [latency, *counters, longest]
    if metric == "collective_us":
        return [*_of_collective(step, outcome), *counters, longest]
    total = 1000 * float(outcome["throughput_gbps"])
    if step.test.test not in MANY_NODES:
        return [Value(metric, unit, "mean", total), *counters]
    hosts = [1000 * float(rate) for rate in outcome["host_gbps"]]
    values = [Value(metric, unit, "total", total), *counters, longest]
    if step.test.test == MESH_TEST and step.test.level == "network":
        values += [
            Value("node_throughput_mbps", "Mbps", statistic, value)
            for statistic, value in (("mean", mean(hosts)), ("min", min(hosts)), ("max", max(hosts)))
        ]
    values.append(Value("paused_percent", "%", "mean", _paused_percent(step, outcome)))
    return values


def _of_collective(step: VirtualStep, outcome: dict[str, Any]) -> list[Value]:
    """How long it took until the last message had ended, and the bandwidths that nccl-tests gives."""
    flows = outcome["flows"]
    time_us = max(start + took for start, took in zip(flows["started_ns"], flows["took_ns"], strict=True)) / 1000
    algorithm_mbps = 8 * step.size_bytes / time_us
    values = [
        Value("collective_us", "us", "total", time_us),
        Value("algorithm_bandwidth_mbps", "Mbps", "total", algorithm_mbps),
    ]
    factor = step.test.bus_factor(step.nodes)
    if factor is not None:
        values.append(Value("bus_bandwidth_mbps", "Mbps", "total", algorithm_mbps * factor))
    return values


def _paused_percent(step: VirtualStep, outcome: dict[str, Any]) -> float:
    """Part of the time that ports of hosts were paused, on average."""
    ports = step.nodes * step.adapter.port.ports
    return 100 * float(outcome["paused_hosts_ns"]) / ports / max(1, int(outcome["simulated_ns"]))
