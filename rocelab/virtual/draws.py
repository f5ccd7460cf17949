"""Simulates points of a study with values that are drawn from what its profiles assume.

In each draw all simulations have the same values, so that what a claim compares differs in them as hardware would.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from rocelab.drawn import DrawStore
from rocelab.profiles.drawing import Draw, drawn
from rocelab.results import RunStore, Sample, StepKey
from rocelab.virtual.runner import AnyStep, VirtualRunner
from rocelab.virtual.schema import VirtualStudy
from rocelab.virtual.smpi.steps import SmpiStep
from rocelab.virtual.steps import plan


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which steps of a study are drawn."""

    tests: frozenset[tuple[str, str]]
    """Level and test of everything that its claims are about."""
    with_mpi: bool
    """Whether MPI programs under SimGrid are, which take minutes each draw."""

    def of(self, steps: Sequence[AnyStep]) -> tuple[list[AnyStep], list[AnyStep]]:
        """The steps to be simulated in each draw, and those of the claims that are left out."""
        wanted = [step for step in steps if not self.tests.isdisjoint((key.level, key.test) for key in step.keys)]
        left_out: list[AnyStep] = []
        chosen: list[AnyStep] = []
        for step in wanted:
            (left_out if isinstance(step, SmpiStep) and not self.with_mpi else chosen).append(step)
        return chosen, left_out


def used(steps: Sequence[AnyStep]) -> set[tuple[str, str]]:
    """Kind and id of every profile that steps use."""
    return {each for step in steps for each in _used(step)}


def _used(step: AnyStep) -> Iterator[tuple[str, str]]:
    table = step.table if isinstance(step, SmpiStep) else step.test
    yield "hosts", step.host
    yield "adapters", step.adapter.id
    yield "stacks", table.stacks[step.adapter.service]
    if isinstance(step, SmpiStep):
        yield "mpis", step.mpi.id
    if step.network.topology != "back-to-back":
        yield "switches", step.network.switch_for(step.adapter).id


class DrawRunner:
    """Carries out steps of a study in draws."""

    def __init__(self, run: RunStore, store: DrawStore, versions: Mapping[str, str]) -> None:
        self._run = run
        self._store = store
        self._versions = versions

    def run(
        self, study: VirtualStudy, chosen: Chosen, values: Sequence[Draw], ended: Callable[[str | None], None]
    ) -> int:
        """Simulate what is not there yet, draw after draw.

        ``ended`` is called after every step, with what went wrong or None. Gives how many steps failed.
        """
        before = self._store.read()
        samples = {} if before is None else before.samples
        # Behind those of the run, so that files of logs are others.
        order = max([self._run.next_order(), *(each.order + 1 for of_one in samples.values() for each in of_one)])
        failed = 0
        for number, draw in enumerate(values):
            keys = _done(samples.get(number, ()))
            with drawn(draw):
                steps = [step for step in chosen.of(plan(study))[0] if not keys.issuperset(step.keys)]
            failed += self._one(number, draw, steps, order, ended)
            order += len(steps)
        return failed

    def _one(
        self,
        number: int,
        draw: Draw,
        steps: Sequence[AnyStep],
        first_order: int,
        ended: Callable[[str | None], None],
    ) -> int:
        runner = VirtualRunner(self._run, None, self._versions, logged=False)

        def perform(step: AnyStep, order: int) -> tuple[tuple[Sample, ...], str | None]:
            with drawn(draw):
                return runner.perform(step, order)

        pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
        failed = 0
        try:
            jobs = [pool.submit(perform, step, first_order + index) for index, step in enumerate(steps)]
            for job in jobs:
                found, error = job.result()
                self._store.append(number, found)
                failed += error is not None
                ended(error)
        finally:
            runner.stop()
            pool.shutdown(cancel_futures=True)
        return failed


def _done(samples: Sequence[Sample]) -> set[StepKey]:
    failed = {sample.key for sample in samples if not sample.ok}
    return {sample.key for sample in samples} - failed
