"""A study as it is on hosts: its tests on every rail, over whatever the rail has.

Nothing of a study file changes between the emulated fabric and hosts. The links of the file are not built. TCP, and
iWARP over it, keeps the congestion control that hosts give it, and their interfaces stay as they are, for both belong
to others as well.
Where verbs have a device of their own, what the study measures of Soft RoCE is measured over that, too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from types import UnionType
from typing import Final, TypeVar

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.hosts.inventory import MpiTable
from rocelab.hosts.rails import Rail
from rocelab.results import LinkInfo
from rocelab.study.availability import measurable
from rocelab.study.levels import level_of
from rocelab.study.schema import AllPairsTable, AnyTest, CloudTable, FabricTable, LinkTable, MeshTable, Study, TcpTable
from rocelab.study.sharing_tables import SharingTable
from rocelab.study.side_by_side_tables import SideBySideTable
from rocelab.study.steps import PairStep, RoundStep, Step
from rocelab.tools.base import Method
from rocelab.tools.loaded import Loaded
from rocelab.tools.perftest import Perftest

StepT = TypeVar("StepT", bound=Step)

#: What a rail is as a kind of link.
KIND: Final = "rail"
_UNTOUCHED: Final = "the interfaces of hosts are not changed"
#: Tests that are left out there, and what to say of it.
_NOT_ON_HOSTS: Final[Sequence[tuple[UnionType | type, str]]] = (
    (CloudTable, "HDFS, HBase and Spark are not measured on hosts: rocelab does not start their daemons there."),
    (SharingTable, "How flows share a link is not measured on hosts: their links have others' traffic, too."),
    (
        SideBySideTable,
        "Programs side by side are not measured on hosts: the test is of the processors of one machine.",
    ),
)


def adapted(
    study: Study, rails: Sequence[Rail], hosts: int, site: MpiTable | None = None, switches: Sequence[str] = ()
) -> tuple[Study, tuple[str, ...]]:
    """The study for these rails, MPI and switches, and a sentence about each thing that is not measured there."""
    study, left_out = measurable(study, lambda wanted: None if wanted == peers.USUAL else _UNTOUCHED)
    notes = [*left_out]
    nodes = min(study.fabric.nodes, hosts)
    tests: list[AnyTest] = []
    for test in study.test:
        fitting, note = _fitting(test, hosts)
        notes += [note] if note is not None else []
        if fitting is not None:
            tests += _on_rails(fitting, rails)
    controls = {each for each in study.tcp.congestion_control if each != peers.DEFAULT}
    if controls:
        names = ", ".join(sorted(controls))
        who = "TCP, and iWARP over it," if any(peers.SOFT_IWARP in test.variants for test in tests) else "TCP"
        notes.append(f"{who} is measured with the congestion control that the hosts give it, and not with {names}.")
    return study.model_copy(
        update={
            "fabric": FabricTable.model_construct(kind="emulated", nodes=nodes),
            "mpi": study.mpi.model_copy(update=_own_mpi(site)),
            "tcp": TcpTable(congestion_control=[peers.DEFAULT]),
            "link": [_link(rail, switches) for rail in rails],
            "test": tests,
        }
    ), tuple(dict.fromkeys(notes))


def _own_mpi(site: MpiTable | None) -> dict[str, str]:
    """The folders that the site names."""
    folders = {} if site is None else {"openmpi": site.openmpi, "mpich": site.mpich}
    return {kind: folder for kind, folder in folders.items() if folder is not None}


class _RailTable(LinkTable):
    """A rail as a link of the study, with what a study file does not say of links."""

    switches: tuple[str, ...] = ()

    @override
    def profile(self) -> LinkProfile:
        return dataclasses.replace(super().profile(), switches=self.switches)


def _link(rail: Rail, switches: Sequence[str]) -> LinkTable:
    # What hosts say need not be within what a study file may ask for.
    return _RailTable.model_construct(
        id=rail.id,
        kind="bridge",
        mtu_bytes=rail.mtu_bytes or 0,
        rate_mbps=rail.rate_mbps and float(rail.rate_mbps),
        switches=tuple(switches),
    )


def link_info(rail: Rail) -> LinkInfo:
    """A rail as results state it."""
    return LinkInfo(id=rail.id, kind=KIND, mtu_bytes=rail.mtu_bytes or 0, rate_mbps=rail.rate_mbps)


def _fitting(test: AnyTest, hosts: int) -> tuple[AnyTest | None, str | None]:
    """The test with as many nodes as there are hosts; None if it cannot be there. And what is to be said about it."""
    for kind, reason in _NOT_ON_HOSTS:
        if isinstance(test, kind):
            return None, reason
    if isinstance(test, AllPairsTable) and test.nodes is None:
        return test.model_copy(update={"nodes": hosts}), None
    if isinstance(test, MeshTable):
        few = [nodes for nodes in test.nodes if nodes <= hosts]
        more = [nodes for nodes in test.nodes if nodes > hosts]
        note = f"{test.test} on {_listed(more)} nodes is not measured: there are {hosts} hosts." if more else None
        return (test.model_copy(update={"nodes": few}) if few else None), note
    needed = test.nodes_used(min(2, hosts))
    if needed > hosts:
        return None, f"{test.every_test[0]} on {needed} nodes is not measured: there are {hosts} hosts."
    return test, None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _on_rails(test: AnyTest, rails: Sequence[Rail]) -> Iterator[AnyTest]:
    for rail in rails:
        variants = {name: chosen for name, chosen in _taking_part(test, rail) if chosen}
        if variants:
            yield test.model_copy(update={"links": [rail.id], "variants": variants})


def _taking_part(test: AnyTest, rail: Rail) -> Iterator[tuple[str, list[str]]]:
    for name, chosen in test.variants.items():
        plain = list(dict.fromkeys(map(peers.name_of, chosen)))
        if name in rail.interconnects:
            yield name, plain
        if name == peers.TCP and "ipoib" in rail.interconnects:
            yield "ipoib", plain
        if name == peers.SOFT_ROCE and rail.verbs is not None:
            _, known = level_of(test).variants(test, rail.verbs)
            yield rail.verbs, [each for each in plain if each in known]


def on_hosts(steps: Sequence[Step]) -> list[Step]:
    """The steps with nothing in their command lines that is only true of this machine."""
    return [_on_hosts(step) for step in steps]


def _on_hosts(step: StepT) -> StepT:
    if isinstance(step, RoundStep):
        return dataclasses.replace(step, pair=_on_hosts(step.pair))
    return dataclasses.replace(step, method=_method(step.method)) if isinstance(step, PairStep) else step


def _method(method: Method) -> Method:
    """The rate of the cycle counter is each host's own, and perftest finds it out."""
    if isinstance(method, Perftest):
        return dataclasses.replace(method, cycles_per_us=None)
    if isinstance(method, Loaded):
        return dataclasses.replace(method, method=_method(method.method), load=_method(method.load))
    return method


def programs_of(steps: Sequence[Step], start: str = "mpirun") -> dict[str, str]:
    """Every program that the steps need on hosts, by the name that command lines have, with what to do without it.

    `start` is what starts MPI programs: where it is ``srun``, no mpirun has to be there.
    """
    executables = (each for step in steps for each in step.executables if not each.is_read)
    wanted = {each.name: each.advice for each in executables}
    starters = {str(implementation.mpiexec) for step in steps for implementation in step.mpi_used}
    if start == "srun" and starters:
        wanted = {name: advice for name, advice in wanted.items() if name not in starters}
        wanted["srun"] = "package slurm-client"
    return wanted
