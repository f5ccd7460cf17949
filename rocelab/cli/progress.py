"""Shows how a run goes on: a bar with the test under way and the time left; plain lines without a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text

from rocelab.cli.studies import seconds
from rocelab.stats import text
from rocelab.study.budget import Pace
from rocelab.study.steps import JobStep, Step
from rocelab.study.together_steps import MeshStep
from rocelab.virtual.flow_steps import FlowsStep
from rocelab.virtual.runner import SimulationWatcher
from rocelab.virtual.schema import MANY_NODES
from rocelab.virtual.steps import VirtualStep

#: A broken program would otherwise fill the terminal; the report lists every failure.
FAILURES_SHOWN = 5
LINE_EVERY_PERCENT = 5
_REFRESH_PER_S = 4


class TimeLeft:
    """Guesses how long the rest takes: what the plan expects, scaled by how wrong it was so far."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._left_s = seconds(steps)
        self._pace = Pace()

    def ended(self, step: Step) -> None:
        """A step is done."""
        self._left_s -= step.expected_s
        self._pace.ended(step)

    def replanned(self, steps: Sequence[Step]) -> None:
        """These steps are left, and no others."""
        self._left_s = seconds(steps)

    def seconds(self) -> float:
        """The guess."""
        return max(0.0, self._left_s) * self._pace.factor


def clock(time_s: float) -> str:
    """``4:05``."""
    whole_s = round(time_s)
    return f"{whole_s // 60}:{whole_s % 60:02}"


def name_of(step: Step) -> str:
    """A step in words."""
    scale = text.size_list(list(step.sizes_bytes))
    series = f"{step.interconnect} {step.variant}"
    if isinstance(step, MeshStep | FlowsStep) or (isinstance(step, VirtualStep) and step.test.test in MANY_NODES):
        scale = text.plural(step.nodes, "node")
    elif isinstance(step, JobStep) and not step.sizes_bytes:
        scale = f"{step.ranks} processes"
    parts = (step.link.id, step.test_name, series, scale, f"repetition {step.repetition + 1}")
    return ", ".join(part for part in parts if part)


class _Watcher:
    """What both kinds share: counting, and telling of the first failures."""

    def __init__(self, study: str, steps: Sequence[Step], console: Console) -> None:
        self.study = study
        self.console = console
        self.total = len(steps)
        self.done = 0
        self.failed = 0
        self.left = TimeLeft(steps)

    def count(self, step: Step, error: str | None) -> None:
        """A step has ended."""
        self.done += 1
        self.left.ended(step)
        if error is None:
            return
        self.failed += 1
        if self.failed > FAILURES_SHOWN:
            return
        reason = error.splitlines()[0]
        self.console.print(
            f"failed: {name_of(step)}: {reason}",
            style="red",
            markup=False,
            highlight=False,
            soft_wrap=not self.console.is_terminal,
        )
        if self.failed == FAILURES_SHOWN:
            self.console.print("(further failures are in the report only)", style="red")

    def progressed(self, step: Step, simulated_ns: int, end_ns: int) -> None:
        """A simulation goes on. Lines are for steps."""

    def count_to(self, steps: Sequence[Step]) -> None:
        """These steps are left, and no others."""
        self.total = self.done + len(steps)
        self.left.replanned(steps)


class BarWatcher(_Watcher):
    """For a terminal. Use as a context manager."""

    def __init__(self, study: str, steps: Sequence[Step], console: Console) -> None:
        super().__init__(study, steps, console)
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TextColumn("{task.fields[left]} left"),
            console=console,
            expand=True,
        )
        self._task: TaskID = self._progress.add_task(study, total=len(steps), left=clock(self.left.seconds()))
        self._step = ""
        self._now = Text("making the fabric", no_wrap=True, overflow="ellipsis", style="dim")
        self._live = Live(
            Group(self._progress, self._now), console=console, refresh_per_second=_REFRESH_PER_S, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def started(self, step: Step) -> None:
        """Name the step below the bar."""
        self._now.plain = self._step = name_of(step)

    def doing(self, what: str) -> None:
        """Name the phase behind the step."""
        self._now.plain = f"{self._step}: {what}" if what else self._step

    def progressed(self, step: Step, simulated_ns: int, end_ns: int) -> None:
        """Show the simulated time behind the step."""
        self._now.plain = f"{name_of(step)}: {simulated_ns / 1e6:.2f} of at most {end_ns / 1e6:.2f} ms simulated"

    def ended(self, step: Step, error: str | None) -> None:
        """Move the bar."""
        self.count(step, error)
        self._show()

    def replanned(self, steps: Sequence[Step], news: str) -> None:
        """Say why, and give the bar its new length."""
        self.count_to(steps)
        self._progress.update(self._task, description=f"{self.study}[/]: {escape(news)}")
        self._show()

    def _show(self) -> None:
        self._progress.update(self._task, completed=self.done, total=self.total, left=clock(self.left.seconds()))


class LineWatcher(_Watcher):
    """For a file or a pipe: a line now and then."""

    def __init__(self, study: str, steps: Sequence[Step], console: Console) -> None:
        super().__init__(study, steps, console)
        self._next_percent = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def started(self, step: Step) -> None:
        """Print a line every few percent."""
        percent = 100 * self.done // self.total
        if percent < self._next_percent:
            return
        self._next_percent = percent + LINE_EVERY_PERCENT
        self.console.print(
            f"{self.study}: {percent:3} %  {name_of(step)}  ({clock(self.left.seconds())} left)",
            soft_wrap=True,
            highlight=False,
        )

    def replanned(self, steps: Sequence[Step], news: str) -> None:
        """Say why, and how far that is with the next step."""
        self.count_to(steps)
        self._next_percent = 0
        self.console.print(f"{self.study}: {news}", markup=False, highlight=False, soft_wrap=True)

    def doing(self, what: str) -> None:
        """Nothing: what takes long is in the log of its step."""

    def ended(self, step: Step, error: str | None) -> None:
        """Count."""
        self.count(step, error)


def watch(study: str, steps: Sequence[Step], console: Console) -> AbstractContextManager[SimulationWatcher]:
    """What suits the console."""
    return BarWatcher(study, steps, console) if console.is_terminal else LineWatcher(study, steps, console)
