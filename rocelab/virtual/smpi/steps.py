"""The steps of a study that SimGrid carries out: each is one MPI job, with all of its sizes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass

from typing_extensions import override

from rocelab import profiles
from rocelab.fabric.base import LinkProfile
from rocelab.results import StepKey
from rocelab.study.steps import Step
from rocelab.tools import interconnects, nas
from rocelab.tools.base import Executable, JobRequest
from rocelab.tools.nas import Nas
from rocelab.tools.own import OwnMpi
from rocelab.tools.rocelab_mpi import RocelabMpi
from rocelab.virtual.schema import LinkTable, SmpiNasTable, SmpiProgramTable, SmpiTable, VirtualStudy
from rocelab.virtual.smpi.platform import Rates, rates

#: The speed of a processor that no calibration says: one on which the factors of work were
#: measured.
WORK_PER_S = 1e9
_MPI = "smpi"
_SMPIRUN = Executable("smpirun", package="libsimgrid-dev")
#: For planning only: messages that are simulated in a second, and how many an iteration of a
#: program has on 64 ranks.
_MESSAGES_PER_S = 30_000
_NAS_MESSAGES = {"is": 12e3, "ft": 4.5e3, "mg": 14e3, "cg": 30e3, "ep": 10, "bt": 3.5e3, "sp": 3.5e3, "lu": 40e3}
_NAS_ITERATIONS = {"is": 10, "ft": 20, "mg": 20, "cg": 75, "ep": 1, "bt": 200, "sp": 400, "lu": 250}


@functools.cache
def simgrid_version() -> str | None:
    """What `smpirun` says of itself."""
    return interconnects.version(_SMPIRUN) if _SMPIRUN.path is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SmpiStep(Step):
    """One job."""

    network: LinkTable
    table: SmpiTable
    host: str
    adapter: profiles.Adapter
    method: RocelabMpi | Nas | OwnMpi
    request: JobRequest

    @property
    def mpi(self) -> profiles.Mpi:
        """The MPI library."""
        return profiles.mpi(self.table.mpi)

    @property
    def rates(self) -> Rates:
        """What the adapter does in its host and on its link."""
        stack = profiles.stack(self.table.stacks[self.adapter.service])
        switch = self.network.switch_for(self.adapter)
        return rates(self.adapter, profiles.host(self.host), stack, switch, self.network.propagation_ns)

    @property
    def calibration_s(self) -> float | None:
        """How long it has to take on the adapter of the calibration; None if nothing says so."""
        calibration = self.table.calibration if isinstance(self.table, SmpiNasTable) else None
        return None if calibration is None else calibration.time_s[self.test_name]

    @property
    def calibrating(self) -> SmpiStep:
        """The same on that adapter."""
        assert isinstance(self.table, SmpiNasTable)
        assert self.table.calibration is not None
        name = self.table.calibration.adapter
        return dataclasses.replace(self, interconnect=name, adapter=profiles.adapter(name))

    @property
    def memory_bytes(self) -> int:
        """Memory that it takes, if the program does its work."""
        return nas.memory_bytes(self.method) if isinstance(self.method, Nas) and not self.is_modelled else 0

    @property
    def is_modelled(self) -> bool:
        """Whether the program does not do its work."""
        return "--model" in self.request.options and self.method.test.partition(".")[0] not in nas.NEEDS_DATA

    @property
    @override
    def keys(self) -> tuple[StepKey, ...]:
        return tuple(
            StepKey(
                link=self.link.id,
                interconnect=self.interconnect,
                level=self.table.level,
                test=self.test_name,
                variant=self.variant,
                size_bytes=size_bytes,
                repetition=self.repetition,
                nodes=self.table.nodes,
                ranks=self.table.ranks,
            )
            for size_bytes in self.request.points
        )

    @property
    @override
    def test_name(self) -> str:
        return self.method.test

    @property
    @override
    def tool(self) -> str:
        return self.method.tool

    @property
    @override
    def executables(self) -> tuple[Executable, ...]:
        # What was built for SimGrid does not run by itself, and has its version.
        program, *files = self.method.executables
        return (dataclasses.replace(program, tells_version=False, known_version=simgrid_version()), *files, _SMPIRUN)

    @property
    @override
    def built_by(self) -> tuple[str, tuple[str, ...]] | None:
        return self.method.built_by if isinstance(self.method, OwnMpi) else None

    @property
    def is_timed(self) -> bool:
        """Whether what the program computes is timed, and not said by the program."""
        return isinstance(self.method, OwnMpi)

    @property
    @override
    def expected_s(self) -> float:
        if isinstance(self.method, RocelabMpi):
            messages = (self.request.iterations or 10) * len(self.request.points) * self.table.ranks**2
            return 0.5 + messages / _MESSAGES_PER_S
        if isinstance(self.method, OwnMpi):
            return self.method.seconds(self.request, None, self.table.ranks)
        program = self.method.program
        iterations = self.table.iterations or _NAS_ITERATIONS[program]
        return 0.5 + iterations * _NAS_MESSAGES[program] * self.table.ranks / 64 / _MESSAGES_PER_S

    @property
    @override
    def place(self) -> tuple[object, ...]:
        return (self.table.level, self.test_name, self.table.nodes, self.table.ranks)

    @property
    @override
    def series(self) -> tuple[str, ...]:
        scale = f"{self.table.nodes}x{self.table.ranks_per_node}"
        return (self.link.id, self.table.level, self.test_name, self.interconnect, self.variant, scale)


def plan_jobs(study: VirtualStudy, table: SmpiTable, link: LinkProfile, network: LinkTable) -> Iterator[SmpiStep]:
    """The jobs of a test on a link. A simulation says the same each time, so there is one repetition.

    Programs take turns, so that several are calibrated at the same time.
    """
    for name in table.variants:
        for method, request in _jobs(table):
            yield SmpiStep(
                link=link,
                interconnect=name,
                variant=_MPI,
                repetition=0,
                time_limit_s=0.0,
                network=network,
                table=table,
                host=study.fabric.host,
                adapter=profiles.adapter(name),
                method=method,
                request=request,
            )


def _jobs(table: SmpiTable) -> Iterator[tuple[RocelabMpi | Nas | OwnMpi, JobRequest]]:
    if isinstance(table, SmpiNasTable):
        some = () if table.iterations is None else ("--iterations", str(table.iterations))
        for program, problem_class in table.pairs:
            options = (*some, *(("--model",) if table.model else ()))
            may_be_unverified = bool(options)
            yield (
                Nas(program, problem_class, table.ranks, _MPI, None, unverified=may_be_unverified),
                JobRequest((), options=options),
            )
        return
    if isinstance(table, SmpiProgramTable):
        for own in table.own:
            yield OwnMpi(own, _MPI, "smpicc", table.ranks, table.nodes), JobRequest(())
        return
    # As many of each size, one to warm up: a simulation has no noise.
    iterations = 2 if table.iterations is None else table.iterations
    yield RocelabMpi(table.test, _MPI, None), JobRequest(table.every_size_bytes(), iterations=iterations, warmup=1)
