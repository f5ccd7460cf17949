"""Programs of one's own in virtual time: the MPI programs of a study for nodes, on the adapters of its `[virtual]`.

The simulator times what a process computes between its calls of MPI on this machine, and has a core of the simulated
host take as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rocelab import profiles
from rocelab.study.levels.programs import program_of, values_of
from rocelab.study.own_tables import ProgramTable
from rocelab.study.problems import Problem, StudyError, dotted, unknown
from rocelab.study.schema import Study
from rocelab.virtual.schema import AnyVirtualTest, FabricTable, LinkTable, SmpiProgramTable, VirtualStudy
from rocelab.virtual.smpi.loading import wrong_job

#: What the link of the simulation is called.
LINK: Final = "one-switch"
_VARIANT: Final = "smpi"


def can_be_simulated(study: Study) -> bool:
    """Whether a study has MPI programs of its own."""
    return any(isinstance(test, ProgramTable) and test.run == "mpi" for test in study.test)


def virtual_half(study: Study) -> VirtualStudy:
    """The same programs on simulated hardware. Raises StudyError for what `[virtual]` has that cannot be."""
    of = study.virtual
    tests: list[AnyVirtualTest] = [
        SmpiProgramTable.model_construct(
            level="program",
            mpi=of.mpi,
            variants={name: [_VARIANT] for name in of.adapters},
            stacks={"rdma": "mpi-verbs"},
            links=None,
            nodes=study.nodes_of(test),
            ranks_per_node=test.ranks_per_node,
            iterations=None,
            own=tuple(program_of(study, test, value, "") for value in values_of(test)),
        )
        for test in study.test
        if isinstance(test, ProgramTable) and test.run == "mpi"
    ]
    made = VirtualStudy.model_construct(
        version=1,
        id=study.id,
        title=study.title,
        description=study.description,
        claims=[],
        repetitions=1,
        seed=study.seed,
        fabric=FabricTable(kind="virtual", host=of.host),
        link=[LinkTable(id=LINK, topology="one-switch", switches=of.switches)],
        test=tests,
    )
    if problems := [*_problems(made)]:
        raise StudyError(study.id, problems)
    return made


def _problems(study: VirtualStudy) -> Iterator[Problem]:
    if study.fabric.host not in profiles.hosts():
        yield Problem(0, "virtual.host", unknown("host profile", study.fabric.host, profiles.hosts()))
    for name in study.link[0].switches:
        if name not in profiles.switches():
            yield Problem(0, "virtual.switches", unknown("switch profile", name, profiles.switches()))
    for at, test in enumerate(study.test):
        assert isinstance(test, SmpiProgramTable)
        for path, words in wrong_job(study, at, test):
            yield Problem(0, dotted(("virtual", *path[2:])), words)
