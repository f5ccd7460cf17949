"""Carries out jobs under SimGrid, and finds the speed of processors at which a program takes the time it should."""

from __future__ import annotations

import contextlib
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from rocelab import profiles
from rocelab.results import ParamValue, RunStore, Sample
from rocelab.study.execution import now
from rocelab.tools.base import JobReading, Output, ToolError, Value, describe_exit, last_words
from rocelab.tools.nas import MAIN_METRIC
from rocelab.virtual.smpi.platform import hostfile, options, platform
from rocelab.virtual.smpi.steps import WORK_PER_S, SmpiStep
from rocelab.virtual.under_way import UnderWay

#: Part of the time by which a calibrated program may miss it.
_CALIBRATED = 1e-3
_CALIBRATIONS_MAX = 8
#: A processor on which work takes no time to speak of.
_FAST = 1e18


@dataclass(frozen=True, slots=True)
class _Done:
    reading: JobReading
    error: str | None
    work_per_s: float
    started_at: str
    duration_s: float


class JobSimulator:
    """Carries out the jobs of a run."""

    def __init__(
        self,
        store: RunStore,
        versions: Mapping[str, str],
        under_way: UnderWay,
        memory: Callable[[], AbstractContextManager[object]] | None = None,
    ) -> None:
        self._store = store
        self._versions = versions
        self._under_way = under_way
        self._lock = threading.Lock()
        self._calibrations: dict[tuple[str, ...], threading.Lock] = {}
        self._speeds: dict[tuple[str, ...], float] = {}
        lock = threading.Lock()
        self._memory = memory or (lambda: lock)

    def execute(self, step: SmpiStep, order: int) -> tuple[tuple[Sample, ...], str | None]:
        """Simulate a step. Gives its samples, and what went wrong."""
        started_at, started_s = now(), time.monotonic()
        base = self._base(step, order)
        reading, error, speed = JobReading({}), None, WORK_PER_S
        try:
            speed = self._speed(step, base)
            reading = self._run(step, speed, base)
        except ToolError as failure:
            error = str(failure)
        samples = self._samples(
            step, _Done(reading, error, speed, started_at, time.monotonic() - started_s), base, order
        )
        return samples, next((sample.error for sample in samples if not sample.ok), None)

    def failed(self, step: SmpiStep, order: int, error: str) -> tuple[Sample, ...]:
        """The samples of a step that came to no end."""
        done = _Done(JobReading({}), error, WORK_PER_S, now(), 0.0)
        return self._samples(step, done, self._base(step, order), order)

    def _base(self, step: SmpiStep, order: int) -> Path:
        return self._store.logs / f"{order:05}-{'-'.join(step.series)}"

    def _speed(self, step: SmpiStep, base: Path) -> float:
        """The speed of the processors, in units of work a second. Raises ToolError if there is none."""
        if step.calibration_s is None:
            return WORK_PER_S
        key = (step.link.id, step.test_name, str(step.table.ranks), step.table.mpi)
        with self._lock:
            lock = self._calibrations.setdefault(key, threading.Lock())
        with lock:
            if key not in self._speeds:
                self._speeds[key] = self._calibrate(step.calibrating, step.calibration_s, base)
            return self._speeds[key]

    def _calibrate(self, step: SmpiStep, wanted_s: float, base: Path) -> float:
        """The speed at which the step takes so long: the time is nearly linear in the time of a unit of work."""

        def time_s(speed: float) -> float:
            return _time_s(self._run(step, speed, base.with_name(f"{base.name}-calibration")))

        before_s, before = 0.0, time_s(_FAST)
        if before >= wanted_s:
            raise ToolError(
                f"{step.test_name} cannot be calibrated: on {step.interconnect} its messages alone take {before:.4g} s,"
                f" and it is to take {wanted_s:g} s"
            )
        unit_s = 1 / WORK_PER_S
        for _ in range(_CALIBRATIONS_MAX):
            found = time_s(1 / unit_s)
            if abs(found - wanted_s) <= _CALIBRATED * wanted_s:
                return 1 / unit_s
            slope = (found - before) / (unit_s - before_s)
            before_s, before = unit_s, found
            unit_s += (wanted_s - found) / slope
        raise ToolError(f"{step.test_name} cannot be calibrated: no speed makes it take {wanted_s:g} s")

    def _run(self, step: SmpiStep, speed: float, base: Path) -> JobReading:
        _file(base, "xml").write_text(
            platform(step.rates, profiles.host(step.host), step.mpi, step.table.nodes, speed), encoding="utf-8"
        )
        _file(base, "hosts").write_text(hostfile(step.table.nodes, step.table.ranks_per_node), encoding="utf-8")
        argv = _command(step, base)
        # What needs memory runs one after the other: rocelab run has seen that one fits.
        with self._memory() if step.memory_bytes else contextlib.nullcontext():
            output = self._output(argv)
        _file(base, "log").write_text(f"{shlex.join(argv)}\n{output.stdout}{output.stderr}", encoding="utf-8")
        if output.exit_status != 0:
            raise ToolError(f"smpirun {describe_exit(output.exit_status)}: {last_words(output)}")
        return step.method.read(step.request, output)

    def _output(self, argv: Sequence[str]) -> Output:
        with self._under_way.start(argv, is_script=True) as process:
            stdout, stderr = process.communicate()
        return Output(stdout, stderr, process.returncode)

    def _samples(self, step: SmpiStep, done: _Done, base: Path, order: int) -> tuple[Sample, ...]:
        run = self._store.info
        folder = f"{self._store.path}/"
        command = shlex.join(_command(step, base)).replace(folder, "")
        metric, unit = step.method.main_metric
        made = []
        for key in step.keys:
            values: tuple[Value | None, ...] = done.reading.values.get(key.size_bytes) or (None,)
            error = done.error or done.reading.errors.get(key.size_bytes) or f"{step.tool} did not report it"
            made += [
                Sample(
                    study=run.study,
                    run=run.id,
                    fabric=run.fabric,
                    **key._asdict(),
                    params=_params(step, done.work_per_s),
                    metric=value.metric if value else metric,
                    unit=value.unit if value else unit,
                    statistic=value.statistic if value else "mean",
                    value=value.value if value else None,
                    ok=value is not None,
                    error=None if value else error,
                    tool=step.tool,
                    tool_version=self._versions.get(step.tool, "unknown"),
                    command=command,
                    started_at=done.started_at,
                    duration_s=round(done.duration_s, 6),
                    log=str(_file(base, "log")).removeprefix(folder),
                    order=order,
                )
                for value in values
            ]
        return tuple(made)


def _file(base: Path, kind: str) -> Path:
    """Names of tests have a dot in them, so this is not `with_suffix`."""
    return base.with_name(f"{base.name}.{kind}")


def _command(step: SmpiStep, base: Path) -> list[str]:
    chosen = options(step.mpi)
    # Programs that know of SimGrid have no data of their own for each process, and say themselves
    # what they compute.
    extra = ["-no-privatize"]
    if step.is_timed:
        chosen |= {"smpi/simulate-computation": "yes", "smpi/host-speed": f"{WORK_PER_S:.6g}f"}
        chosen |= {"smpi/display-timing": "yes"}
        extra = ["--log=smpi_utils.thres:info"]
    configuration = [f"--cfg={name}:{value}" for name, value in chosen.items()]
    return [
        "smpirun", "-np", str(step.table.ranks), "-platform", str(_file(base, "xml")),
        "-hostfile", str(_file(base, "hosts")), "--log=root.thres:warning", *extra, *configuration,
        *step.method.command(step.request),
    ]  # fmt: skip


def _time_s(reading: JobReading) -> float:
    values = reading.values.get(None, ())
    if not values:
        raise ToolError(reading.errors.get(None, "it did not report its time"))
    return next(value.value for value in values if value.metric == MAIN_METRIC[0])


def _params(step: SmpiStep, speed: float) -> dict[str, ParamValue]:
    """What was chosen besides. `calibrated_on` is the interconnect that the speed of the processors is from."""
    params: dict[str, ParamValue] = {"host": step.host, "mpi": step.table.mpi, "modelled": step.is_modelled}
    if step.table.iterations is not None:
        params["iterations"] = step.table.iterations
    if step.calibration_s is not None:
        params["calibrated_on"] = step.calibrating.interconnect
    if step.table.level == "nas":
        params["work_per_s"] = round(speed)
    return params
