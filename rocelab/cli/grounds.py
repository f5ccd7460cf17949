"""Where studies run: what each fabric makes of a study, what it needs, and how a run is carried out on it.

A new fabric is a `Ground` here and whatever it stands on.
"""

from __future__ import annotations

import contextlib
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import psutil
from typing_extensions import override

from rocelab import peers
from rocelab.cli.problems import fail, say
from rocelab.fabric import emulated
from rocelab.fabric.base import Fabric, Launcher
from rocelab.launch import congestion
from rocelab.launch.load_meter import LoadMeter
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.launch.processors import usable_cores
from rocelab.results import LinkInfo, Provenance, RunStore
from rocelab.stats import text
from rocelab.study.adaptive import Course
from rocelab.study.availability import measurable
from rocelab.study.node_facts import ask
from rocelab.study.plan import plan
from rocelab.study.provenance import provenance, tool_versions
from rocelab.study.runner import Outcome, Runner
from rocelab.study.schema import Study
from rocelab.study.steps import Step
from rocelab.tools.base import Executable
from rocelab.virtual.runner import SimulationWatcher, VirtualRunner
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.smpi.steps import SmpiStep
from rocelab.virtual.steps import link_info, simulations
from rocelab.virtual.steps import plan as plan_virtual

StudyT = TypeVar("StudyT", Study, VirtualStudy)


class Opened(Protocol):
    """A fabric that is there, for one study."""

    @property
    def links(self) -> tuple[LinkInfo, ...]:
        """As results state them."""

    @property
    def hosts(self) -> str | None:
        """How a person named the hosts; None where that was not needed."""

    def provenance(self, command: str, steps: Sequence[Step]) -> Provenance:
        """Where a run with these steps is made."""

    def run(self, store: RunStore, steps: Sequence[Step], watcher: SimulationWatcher, course: Course | None) -> Outcome:
        """Carry out the steps."""


class Ground(ABC, Generic[StudyT]):
    """One kind of fabric."""

    kind: str

    @abstractmethod
    def fitting(self, study: StudyT) -> tuple[StudyT, tuple[str, ...]]:
        """The study without what cannot be measured there, and a sentence about each thing of that kind."""

    @abstractmethod
    def steps(self, study: StudyT) -> list[Step]:
        """What a study does there, in the order of its plan."""

    @abstractmethod
    def check(self, steps: Sequence[Step], *, skip_missing: bool) -> None:
        """Say everything that is wrong or missing at once, before anything is measured. Ends the command for it."""

    @abstractmethod
    def open(self, study: StudyT) -> contextlib.AbstractContextManager[Opened]:
        """Have the fabric there until the end of the block. Raises FabricError."""


@dataclass
class _OnNodes:
    """A fabric whose nodes run programs."""

    fabric: Fabric
    launcher: Launcher
    links: tuple[LinkInfo, ...]
    network: Mapping[str, str | int | float | bool]
    hosts: None = None

    def provenance(self, command: str, steps: Sequence[Step]) -> Provenance:
        found = provenance(command, steps, EmulatedGround.kind)
        return dataclasses.replace(found, network={**found.network, **self.network})

    def run(self, store: RunStore, steps: Sequence[Step], watcher: SimulationWatcher, course: Course | None) -> Outcome:
        tools = tool_versions(steps)
        runner = Runner(store, self.fabric, self.launcher, watcher, tools, course=course, meter=LoadMeter())
        return runner.run(steps)


class EmulatedGround(Ground[Study]):
    """Nodes on this machine, made for the run."""

    kind = "emulated"

    @override
    def fitting(self, study: Study) -> tuple[Study, tuple[str, ...]]:
        return measurable(study, processors=len(usable_cores()))

    @override
    def steps(self, study: Study) -> list[Step]:
        return plan(study)

    @override
    def check(self, steps: Sequence[Step], *, skip_missing: bool) -> None:
        implementations = {each for step in steps for each in step.mpi_used}
        if wrong := sorted(problem for each in implementations if (problem := each.problem) is not None):
            words = "\n".join(f"  {problem}" for problem in wrong)
            fail("run", f"the study names an MPI that cannot be used:\n{words}")
        wanted = {executable.name: executable for step in steps for executable in step.executables}
        controls = [control for step in steps if (control := peers.control_of(step.variant)) is not None]
        if controls:
            wanted["ip"] = Executable("ip", package="iproute2")
        if (unlisted := congestion.unlisted(controls)) and not skip_missing:
            say(
                f"This kernel does not list the congestion control {text.listing(unlisted)}: unless it loads it, these "
                "measurements fail and no others."
            )
        missing = [executable for executable in wanted.values() if executable.path is None]
        lines = [f"  {Path(executable.name).name}: {executable.advice}" for executable in missing]
        say_missing(lines, skip_missing=skip_missing)

    @override
    @contextlib.contextmanager
    def open(self, study: Study) -> Iterator[Opened]:
        profiles = [link.profile() for link in study.link]
        with emulated.up(profiles, emulated.default_names(study.fabric.nodes)) as fabric:
            launcher = NamespaceLauncher(fabric)
            facts = ask(fabric, launcher)
            links = tuple(
                dataclasses.replace(LinkInfo(**link.model_dump()), facts=facts.links.get(link.id, {}))
                for link in study.link
            )
            yield _OnNodes(fabric, launcher, links, facts.network)


def say_missing(lines: Sequence[str], *, skip_missing: bool) -> None:
    """Say which programs are missing, and end the command unless what needs them is to fail."""
    if not lines:
        return
    if not skip_missing:
        fail("run", "programs are missing:\n" + "\n".join(lines) + "\nOr run what is possible with --skip-missing.")
    say("Programs are missing; what needs them will fail:\n" + "\n".join(lines))


@dataclass
class _InVirtualTime:
    """A fabric that is simulated."""

    links: tuple[LinkInfo, ...]
    hosts: None = None

    @staticmethod
    def provenance(command: str, steps: Sequence[Step]) -> Provenance:
        return provenance(command, steps, VirtualGround.kind)

    @staticmethod
    def run(
        store: RunStore,
        steps: Sequence[Step],
        watcher: SimulationWatcher,
        course: Course | None,  # noqa: ARG004, it comes out the same each time
    ) -> Outcome:
        return VirtualRunner(store, watcher, tool_versions(steps)).run(simulations(steps))


class VirtualGround(Ground[VirtualStudy]):
    """Hardware that is simulated."""

    kind = "virtual"

    @override
    def fitting(self, study: VirtualStudy) -> tuple[VirtualStudy, tuple[str, ...]]:
        return study, ()

    @override
    def steps(self, study: VirtualStudy) -> list[Step]:
        return [*plan_virtual(study)]

    @override
    def check(self, steps: Sequence[Step], *, skip_missing: bool) -> None:
        executables = {executable.name: executable for step in steps for executable in step.executables}
        missing = [executable for executable in executables.values() if executable.path is None]
        lines = [f"  {Path(executable.name).name}: {executable.advice}" for executable in missing]
        say_missing(lines, skip_missing=skip_missing)
        check_memory(steps)

    @override
    @contextlib.contextmanager
    def open(self, study: VirtualStudy) -> Iterator[Opened]:
        yield _InVirtualTime(tuple(link_info(study, link) for link in study.link))


def check_memory(steps: Sequence[Step]) -> None:
    """Say which simulated program does not fit, before anything is simulated."""
    available_bytes = psutil.virtual_memory().available
    if lines := memory_lines(steps, available_bytes):
        fail("run", too_large(lines, available_bytes))


def memory_lines(steps: Sequence[Step], available_bytes: int) -> list[str]:
    """A line for each simulated program that needs more memory."""
    needed = {step.test_name: step.memory_bytes for step in steps if isinstance(step, SmpiStep)}
    return [
        f"  {test}: {_gibibytes(size_bytes)}" for test, size_bytes in needed.items() if size_bytes > available_bytes
    ]


def too_large(lines: Sequence[str], available_bytes: int, where: str = "") -> str:
    """What is wrong with the programs of :func:`memory_lines`, and what to do."""
    return (
        f"these programs need more memory than the {_gibibytes(available_bytes)} that are available{where}:\n"
        + "\n".join(lines)
        + "\nTake a smaller class, or `model = true`, which simulates their work without data."
    )


def _gibibytes(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.1f} GiB"
