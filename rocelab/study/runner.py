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
from rocelab.fabric.base import Fabric, FabricError, Launcher, LaunchError
from rocelab.launch.congestion import CongestionControls
from rocelab.launch.reception import Receptions
from rocelab.results import DROPPED_PARAM, ParamValue, RunStatus, RunStore, Sample
from rocelab.study import step_load
from rocelab.study.adaptive import Course
from rocelab.study.execution import Circumstances, Measured, Setting, now
from rocelab.study.kinds import Executors
from rocelab.study.plan import measurement_count
from rocelab.study.step_load import Meter, merged, summed_up
from rocelab.study.steps import Step

#: A series that hangs this often in a row would go on hanging, at a time limit each: the rest of it
#: is given up.
HANGS_MAX = 3
#: How far ahead a step is looked for that can be started early: about one round of what takes
#: turns.
LOOK_AHEAD_STEPS = 6
#: How much faster or slower than planned messages may be taken to be.
PACE_MAX = 50.0


class Watcher(Protocol):
    """What is told how a run goes on, such as a progress bar."""

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
        meter: Meter | None = None,
    ) -> None:
        """Without a `course`, the steps are carried out as they are planned, however long that takes.

        Without a `meter`, nothing is noted of what else the machine does meanwhile.
        """
        self._store = store
        self._fabric, self._launcher = fabric, launcher
        self._controls = CongestionControls(fabric.nodes, launcher)
        self._receptions = Receptions(fabric.nodes, launcher)
        self._watcher = watcher
        self._versions = versions
        self._course = course
        self._meter = meter
        self._hangs: dict[tuple[str, ...], int] = {}
        self._pace: dict[tuple[str, ...], float] = {}

    def run(self, steps: Sequence[Step]) -> Outcome:
        """Carry out the steps. Sets the status of the run, also when it is interrupted."""
        setting = Setting(self._fabric, self._launcher, self._store.logs, steps, self._watcher.doing)
        executors = Executors(setting)
        done, failed, cut = 0, 0, 0
        status: RunStatus = "interrupted"
        try:
            queue = _Queue(steps, self._store.next_order(), self._pace)
            while True:
                if self._meter is not None:
                    self._meter.note_names()
                cut += self._revise(queue, done, executors)
                if done == len(queue):
                    break
                step = queue.step(done)
                self._watcher.started(step)
                self._look_ahead(queue, done, executors)
                error = self._carry_out(step, queue.order(done), executors)
                done, failed = done + 1, failed + (error is not None)
                self._watcher.ended(step, error)
                if self._course is not None:
                    self._course.pace.ended(step)
            status = "incomplete" if failed or cut else "complete"
        finally:
            executors.close()
            self._note_load()
            self._store.set_status(status, ended_at=now())
            self._store.close()
        return Outcome(done - failed, failed, cut)

    def _revise(self, queue: _Queue, done: int, executors: Executors) -> int:
        """Let the budget change what is left to do. Returns how many planned steps it has no room for."""
        if self._course is None:
            return 0
        rest = queue.rest(done)
        revision = self._course.revise(queue.planned(done - 1) if done else None, rest, self._store.current_samples)
        if revision.news is None:
            return 0
        # What was started early may be among what is left out.
        executors.withdraw()
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
        return self._store.logs / f"{order:05}-{step.name}.log"

    def _look_ahead(self, queue: _Queue, index: int, executors: Executors) -> None:
        """Start the next step that sleeps at its beginning, so that it sleeps while others are measured."""
        if executors.is_waiting:
            return
        for at in range(index + 1, min(index + 1 + LOOK_AHEAD_STEPS, len(queue))):
            planned = queue.planned(at)
            if planned.head_start_s > 0 and self._hangs.get(planned.series, 0) == 0:
                step = queue.step(at)
                # Where that fails, the step fails in its turn.
                with contextlib.suppress(LaunchError):
                    # It connects before it sleeps. A connection keeps what it was made with.
                    self._choose_control(step)
                    executors.of(step).prepare(step, self._log(step, queue.order(at)))
                return

    def _carry_out(self, step: Step, order: int, executors: Executors) -> str | None:
        log = self._log(step, order)
        circumstances = Circumstances(
            run=self._store.info,
            order=order,
            tool_version=self._versions.get(step.tool, "unknown"),
            log=str(log.relative_to(self._store.path)),
        )
        params: dict[str, ParamValue] = {}
        not_run: str | None = _GIVEN_UP
        try:
            if self._hangs.get(step.series, 0) < HANGS_MAX:
                params, not_run = self._set_link(step)
            dropped_before = self._dropped_packets(step)
            if self._meter is not None:
                self._meter.begin()
            samples = self._measure(step, log, executors, circumstances, not_run=not_run)
            load = None if self._meter is None else self._meter.end()
            dropped_after = self._dropped_packets(step)
        finally:
            # Where that fails, the next step tries again, and is not run unless it succeeds.
            with contextlib.suppress(LaunchError):
                self._receptions.choose(step.link.id, peers.USUAL)
        params = {**params, **({} if load is None else step_load.params(load))}
        if dropped_before is not None and dropped_after is not None:
            params[DROPPED_PARAM] = dropped_after - dropped_before
        if params:
            samples = tuple(dataclasses.replace(sample, params={**sample.params, **params}) for sample in samples)
        if not log.exists():
            samples = tuple(dataclasses.replace(sample, log=None) for sample in samples)
        self._store.append(*samples)
        return next((sample.error for sample in samples if not sample.ok), None)

    def _measure(
        self, step: Step, log: Path, executors: Executors, circumstances: Circumstances, *, not_run: str | None
    ) -> tuple[Sample, ...]:
        executor = executors.of(step)
        if not_run is not None:
            return executor.refuse(step, not_run, circumstances)
        try:
            measured: Measured = executor.measure(step, log, circumstances)
        except LaunchError as failure:
            # A node is lost, and with it whatever a step needs before it begins.
            return executor.refuse(step, str(failure), circumstances)
        self._hangs[step.series] = self._hangs.get(step.series, 0) + 1 if measured.hung else 0
        if measured.pace is not None:
            self._pace[step.series] = min(max(measured.pace, 1 / PACE_MAX), PACE_MAX)
        return measured.samples

    def _dropped_packets(self, step: Step) -> int | None:
        """What the step's link has dropped on purpose so far. None where it does not, or is gone."""
        with contextlib.suppress(FabricError):
            return self._fabric.dropped_packets(step.link.id)
        return None

    def _set_link(self, step: Step) -> tuple[dict[str, ParamValue], str | None]:
        """Give the step's link its congestion control and its reception. Returns what was set, and why not all."""
        try:
            self._choose_control(step)
            return dict(self._receptions.choose(step.link.id, peers.reception_of(step.variant))), None
        except LaunchError as failure:
            return {}, f"not run: {failure}"

    def _choose_control(self, step: Step) -> None:
        control = peers.control_of(step.variant)
        if control is not None:
            self._controls.choose(step.link.id, control)


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
            pace = self._pace.get(step.series)
            self._seen[index] = step if pace is None else step.paced(pace)
        return self._seen[index]

    def order(self, index: int) -> int:
        """The running number of the step within the run."""
        return self._first_order + index


def remaining(steps: Iterable[Step], store: RunStore) -> list[Step]:
    """The steps that a resumed run still has to do: those that are missing and those that failed."""
    done = store.done_keys()
    return [step for step in steps if not done.issuperset(step.keys)]


_GIVEN_UP = f"not run: the {HANGS_MAX} measurements of this series before it hung"
