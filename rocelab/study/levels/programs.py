"""The level program: programs of one's own, as MPI jobs, as a server and a client, or one on each node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Final

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.launch import mpi
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.levels.jobs import job_step
from rocelab.study.own_steps import OwnStep
from rocelab.study.own_tables import ProgramTable
from rocelab.study.problems import Wrong
from rocelab.study.schema import AnyTest, Study
from rocelab.study.steps import Step
from rocelab.tools.base import JobMethod, JobRequest
from rocelab.tools.interconnects import urxe
from rocelab.tools.own import Metric, OwnMpi, OwnProgram

_RSOCKETS: Final = {"LD_PRELOAD": "librspreload.so"}
#: The interconnects whose device urxe gives, and what urxe is told for each.
_URXE_ENV: Final[Mapping[str, Mapping[str, str]]] = {
    peers.SOFT_ROCE: {},
    peers.SOFT_IWARP: {"URXE_TRANSPORT": "iwarp"},
}

#: Of these units, less is better.
_TIMES: Final = ("s", "ms", "us", "ns")


def _is_time(name: str) -> bool:
    return name.endswith(tuple(f"_{unit}" for unit in _TIMES)) and not name.endswith("_per_s")


class ProgramLevel(Level[ProgramTable]):
    """Programs of one's own."""

    turn = 1

    @override
    def variants(self, test: ProgramTable, interconnect: str) -> tuple[str, Sequence[str]]:
        if test.run == "mpi":
            return "for an MPI program", mpi.variants(interconnect)
        known = ("sockets",) if interconnect in (peers.TCP, "ipoib", "udp") else ("verbs", "rsockets")
        return f'for a program with run = "{test.run}"', known

    @override
    def wrong(self, study: Study, at: int, test: ProgramTable) -> Iterator[Wrong]:
        metric = test.metric
        if sum(each is not None for each in (metric.regex, metric.json_path, metric.clock)) != 1:
            yield ("test", at, "metric"), 'one of regex, json and clock ("wall" or "cpu") says where the number is'
        if (metric.unit in _TIMES) != _is_time(metric.name):
            what = "a time, and nothing else, has a name that ends on its unit, such as solve_s"
            yield ("test", at, "metric", "name"), what
        if (test.run == "pair") != bool(test.server):
            yield ("test", at, "server"), 'the command line of the server, for run = "pair" and for that alone'
        if test.run != "mpi" and test.ranks_per_node != 1:
            yield ("test", at, "ranks_per_node"), 'only MPI programs (run = "mpi") have ranks'
        if (test.ready == "prints") != (test.ready_text is not None):
            yield ("test", at, "ready_text"), 'what the server prints, for ready = "prints" and for that alone'
        if len(set(map(str, test.values))) < len(test.values):
            yield ("test", at, "values"), "the same is there twice"

    @override
    def steps(self, study: Study, test: ProgramTable, link: LinkProfile, repetition: int) -> Iterator[Step]:
        for value, (name, variant) in product(values_of(test), contestants(study, test)):
            program = program_of(study, test, value, name)
            if test.run == "mpi":
                yield job_step(
                    study,
                    test,
                    link,
                    repetition,
                    contestant=(name, variant),
                    method=partial(_method, study.nodes_of(test), program),
                    request=JobRequest(()),
                    env=test.env,
                )
            else:
                rsockets = _RSOCKETS if peers.name_of(variant) == "rsockets" else {}
                yield OwnStep(
                    link=link,
                    interconnect=name,
                    variant=variant,
                    repetition=repetition,
                    time_limit_s=limit_s(study, 0.0),
                    program=program,
                    run=test.run,
                    nodes=study.nodes_of(test),
                    env={**rsockets, **_URXE_ENV.get(name, {}), **test.env},
                    device=urxe() if name in _URXE_ENV else None,
                    ready_text=test.ready_text,
                )

    @override
    def round_of(self, at: int, step: Step) -> int:
        return at


def _method(nodes: int, program: OwnProgram, implementation: mpi.Mpi, ranks: int) -> JobMethod:
    return OwnMpi(program, implementation.kind, str(implementation.mpiexec.with_name("mpicc")), ranks, nodes)


def values_of(test: ProgramTable) -> Sequence[str | None]:
    """The values that are varied; None for the only run of a program without."""
    return [*map(str, test.values)] or [None]


def is_own(test: AnyTest) -> bool:
    """Whether a test is a program that the study brings."""
    return isinstance(test, ProgramTable)


def program_of(study: Study, test: ProgramTable, value: str | None, interconnect: str) -> OwnProgram:
    """The program of a test with a value, over an interconnect."""
    table = test.metric
    return OwnProgram(
        name=test.test,
        command=tuple(test.command),
        metric=Metric(table.name, table.unit, table.regex, table.json_path, table.clock),
        folder=study.folder,
        value=value,
        server=tuple(test.server) or None,
        build=tuple(test.build),
        files=tuple(test.files),
        proves=test.proves,
        words=test.words.get(interconnect, {}),
    )
