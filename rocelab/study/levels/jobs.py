"""The levels mpi and nas: one start of an MPI program, with all of its sizes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import TypeVar

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.launch import mpi
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.own_tables import ProgramTable
from rocelab.study.problems import Wrong
from rocelab.study.schema import MpiTestTable, NasTable, Study
from rocelab.study.steps import JobStep, Step
from rocelab.tools import mpi_tests, nas, suites
from rocelab.tools.base import JobMethod, JobRequest
from rocelab.tools.interconnects import urxe
from rocelab.tools.nas import Nas

JobTable = TypeVar("JobTable", MpiTestTable, NasTable)


class _JobLevel(Level[JobTable]):
    """What both levels have in common."""

    turn = 1

    @override
    def variants(self, test: JobTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"at the level {test.level}", mpi.variants(interconnect)

    @abstractmethod
    def methods(self, test: JobTable, kind: mpi.Kind, ranks: int) -> Sequence[JobMethod]:
        """A method for each start."""

    @abstractmethod
    def request(self, test: JobTable) -> JobRequest:
        """What each is asked for."""

    @override
    def steps(self, study: Study, test: JobTable, link: LinkProfile, repetition: int) -> Iterator[JobStep]:
        request = self.request(test)
        for at, contestant in product(range(len(test.every_test)), contestants(study, test)):
            method = partial(self._method, test, at)
            yield job_step(study, test, link, repetition, contestant=contestant, method=method, request=request)

    def _method(self, test: JobTable, at: int, implementation: mpi.Mpi, ranks: int) -> JobMethod:
        return self.methods(test, implementation.kind, ranks)[at]

    @override
    def round_of(self, at: int, step: Step) -> int:
        return at


class MpiLevel(_JobLevel[MpiTestTable]):
    """Benchmarks of MPI."""

    @override
    def methods(self, test: MpiTestTable, kind: mpi.Kind, ranks: int) -> Sequence[JobMethod]:
        return (suites.job_method(test.suite, test.test, kind, test.suite_folder),)

    @override
    def request(self, test: MpiTestTable) -> JobRequest:
        return JobRequest(test.every_size_bytes(), test.iterations, test.warmup, tuple(test.options))

    @override
    def wrong(self, study: Study, at: int, test: MpiTestTable) -> Iterator[Wrong]:
        nodes = study.nodes_of(test)
        if (wrong := suites.wrong_test(test.suite, test.test, test.suite_folder)) is not None:
            yield ("test", at, wrong[0]), wrong[1]
            return
        if mpi_tests.has_sizes(test.test) and test.sizes_bytes is None:
            yield ("test", at, "sizes_bytes"), "this key is missing"
            return
        if not mpi_tests.has_sizes(test.test) and test.sizes_bytes is not None:
            yield ("test", at, "sizes_bytes"), f"{test.test} has no message size: leave sizes_bytes out"
            return
        sizes_bytes = test.every_size_bytes()
        method = suites.job_method(test.suite, test.test, mpi.KINDS[0], test.suite_folder)
        if test.sizes_bytes is not None and not sizes_bytes:
            return  # which has been reported
        if (problem := method.problem(sizes_bytes, nodes * test.ranks_per_node)) is not None:
            yield ("test", at, "test"), f"{method.tool}: {problem}"


class NasLevel(_JobLevel[NasTable]):
    """The NAS Parallel Benchmarks."""

    @override
    def methods(self, test: NasTable, kind: mpi.Kind, ranks: int) -> Sequence[JobMethod]:
        return [Nas(program, each, ranks, kind, test.suite_folder, test.suite) for program, each in test.pairs]

    @override
    def request(self, test: NasTable) -> JobRequest:
        return JobRequest(())

    @override
    def wrong(self, study: Study, at: int, test: NasTable) -> Iterator[Wrong]:
        if (wrong := nas.wrong_test(test.suite, test.suite_folder)) is not None:
            yield ("test", at, wrong[0]), wrong[1]
        for key, chosen in (("programs", test.programs), ("classes", test.classes)):
            if len(set(chosen)) < len(chosen):
                yield ("test", at, key), "the same is there twice"
        ranks = study.nodes_of(test) * test.ranks_per_node
        for program in dict.fromkeys(test.programs):
            if (problem := nas.ranks_problem(program, ranks)) is not None:
                yield ("test", at, "programs"), problem


def job_step(
    study: Study,
    test: MpiTestTable | NasTable | ProgramTable,
    link: LinkProfile,
    repetition: int,
    *,
    contestant: tuple[str, str],
    method: Callable[[mpi.Mpi, int], JobMethod],
    request: JobRequest,
    env: Mapping[str, str] | None = None,
) -> JobStep:
    """One start of an MPI program over an interconnect in a variant; `method` is told the MPI and how many ranks."""
    name, variant = contestant
    kind, transport = mpi.transport(name, peers.name_of(variant))
    implementation = implementation_of(study, kind)
    nodes = study.nodes_of(test)
    ranks = nodes * test.ranks_per_node
    made = method(implementation, ranks)
    measuring_s = made.seconds(request, link.rate_mbps, ranks)
    return JobStep(
        link=link,
        interconnect=name,
        variant=variant,
        repetition=repetition,
        time_limit_s=limit_s(study, implementation.start_s(ranks) + measuring_s),
        level=test.level,
        method=made,
        request=request,
        mpi=implementation,
        transport=transport,
        device=urxe() if transport.urxe else None,
        nodes=nodes,
        ranks_per_node=test.ranks_per_node,
        mapping=test.mapping,
        measuring_s=measuring_s,
        env=env or {},
    )


def implementation_of(study: Study, kind: mpi.Kind) -> mpi.Mpi:
    """The MPI that a study takes: the one it names, else rocelab's own."""
    named = study.mpi.openmpi if kind == "openmpi" else study.mpi.mpich
    return mpi.own(kind) if named is None else mpi.installed(kind, named)
