"""Which executor each kind of step has. A new kind of step is a line here and a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rocelab.study.all_pairs import RoundExecutor
from rocelab.study.clouds import CloudExecutor
from rocelab.study.execution import Setting, StepExecutor
from rocelab.study.jobs import JobExecutor
from rocelab.study.meshes import MeshExecutor
from rocelab.study.own import OwnExecutor
from rocelab.study.own_steps import OwnStep
from rocelab.study.pairs import PairExecutor
from rocelab.study.sharing import SharingExecutor
from rocelab.study.sharing_steps import SharingStep
from rocelab.study.side_by_side import SideBySideExecutor
from rocelab.study.side_by_side_steps import SideBySideStep
from rocelab.study.steps import CloudStep, JobStep, PairStep, RoundStep, Step
from rocelab.study.together_steps import MeshStep

EXECUTORS: Final[Mapping[type[Step], type[StepExecutor[Any]]]] = {
    PairStep: PairExecutor,
    JobStep: JobExecutor,
    MeshStep: MeshExecutor,
    SharingStep: SharingExecutor,
    SideBySideStep: SideBySideExecutor,
    RoundStep: RoundExecutor,
    OwnStep: OwnExecutor,
    CloudStep: CloudExecutor,
}


class Executors:
    """The executors of a run, each made when its first step comes."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._made: dict[type[Step], StepExecutor[Any]] = {}

    def of(self, step: Step) -> StepExecutor[Any]:
        """The one that carries out a step."""
        kind = type(step)
        if kind not in self._made:
            self._made[kind] = EXECUTORS[kind](self._setting)
        return self._made[kind]

    @property
    def is_waiting(self) -> bool:
        """A step is prepared and not yet carried out."""
        return any(executor.is_waiting for executor in self._made.values())

    def withdraw(self) -> None:
        """End what was prepared and not carried out."""
        for executor in self._made.values():
            executor.withdraw()

    def close(self) -> None:
        """End everything that outlives a step."""
        for executor in self._made.values():
            executor.close()
