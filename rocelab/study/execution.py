"""What carries out steps: an executor for each kind of step.

An executor starts the programs of a step and makes samples of what they leave behind. `rocelab.study.kinds` says which
executor each kind of step has; the runner knows no more of them than what is here.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from rocelab.fabric.base import Fabric, Launcher
from rocelab.results import ParamValue, RunInfo, Sample, StepKey
from rocelab.study.steps import Step
from rocelab.tools.base import Value

StepT = TypeVar("StepT", bound=Step)
ReadingT = TypeVar("ReadingT")

NO_REASON = "no reason is known"
#: How often a step is measured again whose program was kept from measuring.
DISTURBED_MAX = 2


def _ignore(_what: str) -> None:
    """For a run without a watcher."""


@dataclass(frozen=True, slots=True)
class Setting:
    """Where the steps of a run are carried out."""

    fabric: Fabric
    launcher: Launcher
    logs: Path = Path()
    """The folder for what outlives a step."""
    steps: Sequence[Step] = ()
    """All that is planned."""
    doing: Callable[[str], None] = _ignore
    """Told which phase a step is in; empty: none that has a name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution(Generic[ReadingT]):
    """How a step went: a reading, or the error why there is none. A reading may also be a part of what was wanted."""

    reading: ReadingT | None = None
    error: str | None = None
    hung: bool = False
    """It had to be stopped at its time limit."""
    disturbed: bool = False
    """Its program was kept from measuring: by other work, as it says itself, or by what its library is known for."""
    disturbed_before: int = 0
    """How many of its attempts before this one were disturbed."""
    command: str = ""
    started_at: str
    duration_s: float = 0.0


def until_undisturbed(attempt: Callable[[], Execution[ReadingT]]) -> Execution[ReadingT]:
    """Attempt a step until its program is let measure, `DISTURBED_MAX` times more at most."""
    execution = attempt()
    for before in range(1, DISTURBED_MAX + 1):
        if not execution.disturbed:
            break
        execution = dataclasses.replace(attempt(), disturbed_before=before)
    return execution


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What the samples of one step share besides the step itself."""

    run: RunInfo
    order: int
    tool_version: str
    log: str | None


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of a step."""

    samples: tuple[Sample, ...]
    hung: bool = False
    pace: float | None = None
    """How many times as long as planned a message took, where that is known."""


class StepExecutor(ABC, Generic[StepT]):
    """Carries out the steps of one kind, one at a time. Has to be closed."""

    @abstractmethod
    def __init__(self, setting: Setting) -> None:
        """Starts nothing yet."""

    @abstractmethod
    def execute(self, step: StepT, log: Path) -> Execution[Any]:
        """Run a step to its end. No program of it is left afterwards, also when this is interrupted."""

    @abstractmethod
    def samples(self, step: StepT, execution: Execution[Any], circumstances: Circumstances) -> tuple[Sample, ...]:
        """The samples of a step; at least one, without a value, if there is no reading."""

    def measure(self, step: StepT, log: Path, circumstances: Circumstances) -> Measured:
        """Carry out a step, and make its samples."""
        execution = self.execute(step, log)
        return Measured(self.samples(step, execution, circumstances), execution.hung)

    def refuse(self, step: StepT, reason: str, circumstances: Circumstances) -> tuple[Sample, ...]:
        """The samples of a step that is not carried out."""
        return self.samples(step, Execution(error=reason, started_at=now()), circumstances)

    @property
    def is_waiting(self) -> bool:
        """A step is prepared and not yet carried out."""
        return False

    def prepare(self, step: StepT, log: Path) -> None:
        """Start a step that sleeps first, while others are measured."""
        raise NotImplementedError

    def withdraw(self) -> None:
        """End what was prepared and not carried out."""

    def close(self) -> None:
        """End everything that outlives a step."""


def sample_of(
    step: Step,
    execution: Execution[Any],
    circumstances: Circumstances,
    *,
    key: StepKey,
    main_metric: tuple[str, str],
    params: Mapping[str, ParamValue],
    value: Value | None,
    error: str | None = None,
) -> Sample:
    """One sample. Without a value, it says that there is none of the main metric, which is a name and a unit."""
    run = circumstances.run
    return Sample(
        study=run.study,
        run=run.id,
        fabric=run.fabric,
        **key._asdict(),
        params={**params, "disturbed_before": execution.disturbed_before} if execution.disturbed_before else params,
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


def now() -> str:
    """The time as samples state it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
