"""Carries out the steps of a study one after the other, and writes what they measure as soon as it is measured.

A step that fails or hangs becomes a failed sample and the study goes on. An interruption (KeyboardInterrupt) ends the
programs under way and leaves the samples so far; the same run can be continued with the steps that are missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from rocelab import peers
from rocelab.fabric.base import Fabric, Launcher, LaunchError
from rocelab.launch.congestion import CongestionControls
from rocelab.launch.reception import Receptions
from rocelab.results import ParamValue, RunStatus, RunStore, Sample
from rocelab.study.adaptive import Course
from rocelab.study.clouds import CloudExecution, CloudExecutor
from rocelab.study.execution import Execution, Executor, now
from rocelab.study.jobs import JobExecution, JobExecutor
from rocelab.study.load_meter import LoadMeter, merged, summed_up
from rocelab.study.meshes import MeshExecution, MeshExecutor
from rocelab.study.plan import measurement_count
from rocelab.study.sampling import (
    Circumstances,
    samples_of_cloud,
    samples_of_job,
    samples_of_mesh,
    samples_of_pair,
)
from rocelab.study.startup import StartupCosts
from rocelab.study.steps import CloudStep, JobStep, MeshStep, PairStep, Step
from rocelab.tools.base import CPU_TEST, JobReading

#: A series that hangs this often in a row would go on hanging, at a time limit each: the rest of it is given up.
HANGS_MAX = 3
#: How far ahead a step is looked for that can be started early: about one round of what takes turns.
LOOK_AHEAD_STEPS = 6
#: How much faster or slower than planned messages may be taken to be.
PACE_MAX = 50.0


class Watcher(Protocol):
    """Who wants to know how a run goes on, such as a progress bar."""

    def started(self, step: Step) -> None:
        """A step begins."""

    def doing(self, what: str) -> None:
        """The step that began last is in a phase that takes a while; empty: none that has a name."""

    def ended(self, step: Step, error: str | None) -> None:
        """A step has ended; `error` says why it failed."""

    def replanned(self, steps: Sequence[Step], news: str) -> None:
        """From now on these steps are left; `news` says why, for a person."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    done: int
    failed: int
    cut: int = 0
    """How many steps a time budget had no room for."""


class Runner:
    """One run of a study on a fabric."""

    def __init__(
        self,
        store: RunStore,
        fabric: Fabric,
        launcher: Launcher,
        watcher: Watcher,
        versions: Mapping[str, str],
        *,
        course: Course | None = None,
        meter: LoadMeter | None = None,
    ) -> None:
        """Without a `course`, the steps are carried out as they are planned, however long that takes.

        Without a `meter`, nothing is noted of what else the machine does meanwhile.
        """
        self._store = store
        self._executor = Executor(fabric, launcher)
        self._jobs = JobExecutor(fabric, launcher)
        self._meshes = MeshExecutor(fabric, launcher)
        self._clouds = CloudExecutor(fabric, launcher, store.logs)
        self._controls = CongestionControls(fabric.nodes, launcher)
        self._receptions = Receptions(fabric.nodes, launcher)
        self._links = fabric.links
        self._watcher = watcher
        self._versions = versions
        self._course = course
        self._meter = meter
        self._hangs: dict[tuple[str, ...], int] = {}
        self._pace: dict[tuple[str, ...], float] = {}

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Carry out the steps. Sets the status of the run, also when it is interrupted."""
        pairs = [step for step in steps if isinstance(step, PairStep)]
        size_max_bytes = max((step.size_bytes for step in pairs if step.test == CPU_TEST), default=1)
        startups = StartupCosts(lambda step: self._executor.execute(step, None), self._links, size_max_bytes)
        done, failed, cut = 0, 0, 0
        status: RunStatus = "interrupted"
        try:
            queue = _Queue(steps, self._store.next_order(), self._pace)
            while True:
                if self._meter is not None:
                    self._meter.note_names()
                cut += self._revise(queue, done)
                if done == len(queue):
                    break
                step = queue.step(done)
                self._watcher.started(step)
                self._look_ahead(queue, done)
                error = self._carry_out(step, queue.order(done), startups)
                done, failed = done + 1, failed + (error is not None)
                self._watcher.ended(step, error)
                if self._course is not None:
                    self._course.pace.ended(step)
            status = "incomplete" if failed or cut else "complete"
        finally:
            self._executor.close()
            self._clouds.close()
            self._note_load()
            self._store.set_status(status, ended_at=now())
            self._store.close()
        return Outcome(done - failed, failed, cut)

    def _revise(self, queue: _Queue, done: int) -> int:
        """Let the budget change what is left to do. Returns how many planned steps it has no room for."""
        if self._course is None:
            return 0
        rest = queue.rest(done)
        revision = self._course.revise(queue.planned(done - 1) if done else None, rest, self._store.current_samples)
        if revision.news is None:
            return 0
        # What was started early may be among what is left out.
        self._executor.close()
        queue.replace_rest(done, revision.steps)
        more = measurement_count(revision.steps) - measurement_count(rest)
        if revision.cut == 0:
            self._store.note(planned_steps=self._store.info.planned_steps + more)
        self._watcher.replanned(revision.steps, revision.news)
        return revision.cut

    def _note_load(self) -> None:
        if self._meter is None:
            return
        before = self._store.info.load
        top = self._meter.top() if before is None else merged(before.top, self._meter.top())
        self._store.note(load=summed_up(self._store.current_samples(), self._meter.cores, top))

    def _log(self, step: Step, order: int) -> Path:
        size = f"-{step.size_bytes}" if isinstance(step, PairStep | CloudStep) else ""
        return self._store.logs / f"{order:05}-{'-'.join(step.series)}{size}-{step.repetition}.log"

    def _look_ahead(self, queue: _Queue, index: int) -> None:
        """Start the next step that sleeps at its beginning, so that it sleeps while others are measured."""
        if self._executor.is_waiting:
            return
        for at in range(index + 1, min(index + 1 + LOOK_AHEAD_STEPS, len(queue))):
            planned = queue.planned(at)
            if not isinstance(planned, PairStep) or planned.method.head_start_s == 0:
                continue
            if self._hangs.get(planned.series, 0) == 0:
                step = queue.step(at)
                assert isinstance(step, PairStep)
                self._executor.prepare(step, self._log(step, queue.order(at)))
                return

    def _carry_out(self, step: Step, order: int, startups: StartupCosts) -> str | None:
        log = self._log(step, order)
        circumstances = Circumstances(
            run=self._store.info,
            order=order,
            tool_version=self._versions.get(step.tool, "unknown"),
            log=str(log.relative_to(self._store.path)),
        )
        params: Mapping[str, ParamValue] = {}
        not_run: str | None = _GIVEN_UP
        try:
            if self._hangs.get(step.series, 0) < HANGS_MAX:
                params, not_run = self._set_link(step)
            if self._meter is not None:
                self._meter.begin()
            samples = self._measure(step, log, startups, circumstances, not_run=not_run)
            load = None if self._meter is None else self._meter.end()
        finally:
            # Where that fails, the next step tries again, and is not run unless it succeeds.
            with contextlib.suppress(LaunchError):
                self._receptions.choose(step.link.id, peers.USUAL)
        params = {**params, **({} if load is None else load.params)}
        if params:
            samples = tuple(dataclasses.replace(sample, params={**sample.params, **params}) for sample in samples)
        if not log.exists():
            samples = tuple(dataclasses.replace(sample, log=None) for sample in samples)
        self._store.append(*samples)
        return next((sample.error for sample in samples if not sample.ok), None)

    def _measure(
        self, step: Step, log: Path, startups: StartupCosts, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        if isinstance(step, PairStep):
            return self._carry_out_pair(step, log, startups, circumstances, not_run=not_run)
        if isinstance(step, JobStep):
            return self._carry_out_job(step, log, circumstances, not_run=not_run)
        if isinstance(step, MeshStep):
            return self._carry_out_mesh(step, log, circumstances, not_run=not_run)
        assert isinstance(step, CloudStep)
        return self._carry_out_cloud(step, log, circumstances, not_run=not_run)

    def _set_link(self, step: Step) -> tuple[Mapping[str, ParamValue], str | None]:
        """Give the step's link its congestion control and its reception. Returns what was set, and why not all."""
        control = peers.control_of(step.variant)
        try:
            if control is not None:
                self._controls.choose(step.link.id, control)
            return dict(self._receptions.choose(step.link.id, peers.reception_of(step.variant))), None
        except LaunchError as failure:
            return {}, f"not run: {failure}"

    def _carry_out_pair(
        self, step: PairStep, log: Path, startups: StartupCosts, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        execution = _pair_not_run(not_run) if not_run else self._executor.execute(step, log)
        self._note_hang(step, hung=execution.hung, not_run=not_run)
        if execution.reading is not None:
            factor = execution.reading.active_s / (step.messages * step.message_s)
            self._pace[step.series] = min(max(factor, 1 / PACE_MAX), PACE_MAX)
        startup = None
        if execution.reading is not None and step.test == CPU_TEST and step.method.cpu_from == "processes":
            startup = startups.of(step)
        return samples_of_pair(step, execution, startup, circumstances)

    def _carry_out_job(
        self, step: JobStep, log: Path, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        execution = _job_not_run(not_run) if not_run else self._jobs.execute(step, log)
        self._note_hang(step, hung=execution.hung, not_run=not_run)
        return samples_of_job(step, execution, circumstances)

    def _carry_out_mesh(
        self, step: MeshStep, log: Path, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        execution = _mesh_not_run(not_run) if not_run else self._meshes.execute(step, log)
        self._note_hang(step, hung=execution.hung, not_run=not_run)
        return samples_of_mesh(step, execution, circumstances)

    def _carry_out_cloud(
        self, step: CloudStep, log: Path, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        execution = _cloud_not_run(not_run) if not_run else self._clouds.execute(step, log, self._watcher.doing)
        self._note_hang(step, hung=execution.hung, not_run=not_run)
        return samples_of_cloud(step, execution, circumstances)

    def _note_hang(self, step: Step, *, hung: bool, not_run: str | None) -> None:
        if not_run is None:
            self._hangs[step.series] = self._hangs.get(step.series, 0) + 1 if hung else 0


class _Queue:
    """The steps in their order, each with a number of messages that fits what its series has shown so far.

    Once a step was asked for, it stays as it is.
    """

    def __init__(self, steps: Sequence[Step], first_order: int, pace: Mapping[tuple[str, ...], float]) -> None:
        self._steps = list(steps)
        self._first_order = first_order
        self._pace = pace
        self._seen: dict[int, Step] = {}

    def __len__(self) -> int:
        return len(self._steps)

    def rest(self, index: int) -> Sequence[Step]:
        """The steps from there on, as they stand in the plan."""
        return self._steps[index:]

    def replace_rest(self, index: int, steps: Sequence[Step]) -> None:
        """Have other steps from there on."""
        self._steps[index:] = steps
        self._seen = {at: step for at, step in self._seen.items() if at < index}

    def planned(self, index: int) -> Step:
        """The step as it stands in the plan."""
        return self._steps[index]

    def step(self, index: int) -> Step:
        """The step as it is carried out."""
        if index not in self._seen:
            step = self._steps[index]
            if isinstance(step, PairStep) and step.series in self._pace:
                step = step.paced(self._pace[step.series])
            self._seen[index] = step
        return self._seen[index]

    def order(self, index: int) -> int:
        """The running number of the step within the run."""
        return self._first_order + index


def remaining(steps: Iterable[Step], store: RunStore) -> list[Step]:
    """The steps that a resumed run still has to do: those that are missing and those that failed."""
    done = store.done_keys()
    return [step for step in steps if not done.issuperset(step.keys)]


_GIVEN_UP = f"not run: the {HANGS_MAX} measurements of this series before it hung"


def _pair_not_run(reason: str) -> Execution:
    return Execution(None, reason, hung=False, client=None, server=None, command="", started_at=now(), duration_s=0.0)


def _job_not_run(reason: str) -> JobExecution:
    return JobExecution(JobReading({}), reason, hung=False, finished=None, command="", started_at=now(), duration_s=0.0)


def _mesh_not_run(reason: str) -> MeshExecution:
    return MeshExecution(None, reason, hung=False, command="", started_at=now(), duration_s=0.0)


def _cloud_not_run(reason: str) -> CloudExecution:
    return CloudExecution(None, reason, hung=False, command="", started_at=now(), duration_s=0.0)
