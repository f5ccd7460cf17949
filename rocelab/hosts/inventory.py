"""Which hosts there are and how they are reached: from a file, a list, or the allocation that rocelab runs in.

find("node[01-16]")     # a list, as Slurm and ClusterShell write it
find("hosts.toml")      # a file; docs/hosts.md has its keys
find(None)              # ./hosts.toml, or the allocation of Slurm or PBS
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from ClusterShell.NodeSet import NodeSet, NodeSetException
from pydantic import BaseModel, ConfigDict, Field

from rocelab.fabric.base import FabricError
from rocelab.study.loading import table_of
from rocelab.study.positions import line_of
from rocelab.study.problems import Problem, StudyError, dotted
from rocelab.study.tables import Name

LauncherName = Literal["ssh", "slurm"]
#: The file that is taken when no hosts are named.
DEFAULT_FILE: Final = Path("hosts.toml")
#: Where Slurm and PBS say what an allocation has.
_SLURM: Final = "SLURM_JOB_NODELIST"
_PBS: Final = "PBS_NODEFILE"
_WAYS: Final = (
    "Name them (`node[01-16]`), write a hosts.toml (docs/hosts.md), or run rocelab inside an allocation of Slurm or "
    "PBS."
)


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class RailTable(_Table):
    """`[[rail]]`: one network that joins the hosts, by the interface or the addresses that it has on each."""

    id: Name
    interface: str | None = None
    network: str | None = None
    device: str | None = None
    """The RDMA device, such as ``mlx5_0``. None: the one that belongs to the interface."""
    port: Annotated[int, Field(ge=1, le=255)] = 1
    gid_index: Annotated[int, Field(ge=0, le=65535)] | None = None
    """None: that of RoCE v2 with the interface's IPv4 address."""


class SwitchTable(_Table):
    """`[[switch]]`: an access switch with its hosts, of which each has one."""

    id: Name
    hosts: str | list[str]


class MpiTable(_Table):
    """`[mpi]`: the site's own MPI."""

    openmpi: str | None = None
    mpich: str | None = None
    """Folders on the hosts. None: that which the study takes."""
    start: Literal["mpirun", "srun"] = "mpirun"
    """`srun`: by job steps of Slurm, which tell Open MPI of its ranks by PMIx, and MPICH by PMI-2."""


class HostsTable(_Table):
    """The whole file."""

    hosts: str | list[str] | None = None
    """A list as ClusterShell has it, groups (``@rack1``) included. None: the allocation's."""
    launcher: LauncherName | None = None
    """None: Slurm inside an allocation of Slurm whose hosts these are, else ssh."""
    python: str = "python3"
    ssh_options: list[str] = []
    rail: list[RailTable] = []
    switch: list[SwitchTable] = []
    mpi: MpiTable = MpiTable()
    programs: dict[str, str] = {}
    """Where programs are on the hosts that are not in PATH there, by name."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """The hosts of a run."""

    names: tuple[str, ...]
    launcher: LauncherName
    table: HostsTable
    source: str
    """Where the hosts come from, for messages."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """The access switch of each host; empty where nothing is said of them."""

    def without(self, names: Collection[str]) -> Inventory:
        """The same, but for some hosts. Raises FabricError for one that is none."""
        if unknown := sorted(set(names) - set(self.names)):
            raise FabricError(f"{self.source}: there is no host {', '.join(unknown)} to do without")
        return dataclasses.replace(self, names=tuple(name for name in self.names if name not in names))


def find(named: str | None, environment: Mapping[str, str] | None = None) -> Inventory:
    """The hosts that a person means. Raises FabricError, which says what is wrong and where."""
    env = os.environ if environment is None else environment
    if named is None and DEFAULT_FILE.exists():
        named = str(DEFAULT_FILE)
    if named is not None and (named.endswith(".toml") or "/" in named):
        return _of_file(Path(named), env)
    if named is not None:
        return _inventory(names(named), HostsTable(), "the list of hosts", env)
    allocated, source = _of_allocation(env)
    return _inventory(allocated, HostsTable(), source, env)


def _of_file(path: Path, env: Mapping[str, str]) -> Inventory:
    if not path.exists():
        raise FabricError(f"{path}: there is no such file. {_WAYS}")
    try:
        table, text = table_of(path, HostsTable)
    except StudyError as error:
        raise FabricError(str(error)) from None
    problems = [
        Problem(line_of(text, ("rail", at)), dotted(("rail", at)), words)
        for at, rail in enumerate(table.rail)
        if (words := _wrong_rail(rail, [other.id for other in table.rail[:at]])) is not None
    ]
    if problems:
        raise FabricError(str(StudyError(str(path), problems)))
    if table.hosts is None:
        names, source = _of_allocation(env)
    else:
        names, source = _names([table.hosts] if isinstance(table.hosts, str) else table.hosts, str(path)), str(path)
    found = _inventory(names, table, source, env)
    if table.mpi.start == "srun" and found.launcher != "slurm":
        raise FabricError(
            f'{path}: mpi.start = "srun" is for hosts of an allocation that rocelab runs in: use salloc or sbatch, or '
            'leave it out for "mpirun"'
        )
    return dataclasses.replace(found, switches=_switches(table.switch, found.names, path))


def _switches(tables: Sequence[SwitchTable], hosts: Sequence[str], path: Path) -> dict[str, str]:
    """By host. Raises FabricError unless each host has one, or there is none."""
    found: dict[str, str] = {}
    for table in tables:
        for host in _names([table.hosts] if isinstance(table.hosts, str) else table.hosts, str(path)):
            if found.setdefault(host, table.id) != table.id:
                raise FabricError(f"{path}: {host} is at the switches {found[host]} and {table.id}: leave one out")
    if found and (without := [host for host in hosts if host not in found]):
        raise FabricError(
            f"{path}: {folded(without)}: no [[switch]] has them. Name the switch of each host, or of none"
        )
    return found


def _wrong_rail(rail: RailTable, before: Sequence[str]) -> str | None:
    if rail.id in before:
        return f"there is another rail {rail.id!r} before it"
    if (rail.interface is None) == (rail.network is None):
        return "a rail has `interface` (the same name on all hosts) or `network` (such as 10.1.0.0/16), and not both"
    if rail.network is not None:
        try:
            ipaddress.IPv4Network(rail.network)
        except ValueError as error:
            return f"network: {error}; an IPv4 network is written as 10.1.0.0/16"
    return None


def folded(hosts: Iterable[str]) -> str:
    """Hosts as a list that people can read, and give again: ``node[01-16]``."""
    return str(NodeSet.fromlist(list(hosts)))


def names(text: str) -> tuple[str, ...]:
    """The hosts of a list that a person wrote. Raises FabricError."""
    return _names([text], "the list of hosts")


def _names(lists: Sequence[str], source: str) -> tuple[str, ...]:
    try:
        # Every list keeps its place, and the hosts of each are in the order of their numbers.
        names = dict.fromkeys(str(name) for each in lists for name in NodeSet(each))
    except NodeSetException as error:
        raise FabricError(f"{source}: not a list of hosts: {error}. One is written as node[01-16] or a,b,c") from None
    if not names:
        raise FabricError(f"{source}: there is no host in it. {_WAYS}")
    return tuple(names)


def _of_allocation(env: Mapping[str, str]) -> tuple[tuple[str, ...], str]:
    if env.get(_SLURM):
        return _names([env[_SLURM]], f"${_SLURM}"), "the allocation of Slurm"
    if env.get(_PBS):
        try:
            # A host has a line for each of its slots.
            lines = Path(env[_PBS]).read_text(encoding="utf-8").split()
        except OSError as error:
            raise FabricError(f"${_PBS}: {env[_PBS]}: {error.strerror}") from None
        return _names(lines, env[_PBS]), "the allocation of PBS"
    raise FabricError(f"which hosts? {_WAYS}")


def _inventory(names: tuple[str, ...], table: HostsTable, source: str, env: Mapping[str, str]) -> Inventory:
    launcher = table.launcher
    if launcher == "slurm" and not env.get(_SLURM):
        raise FabricError(f"{source}: the launcher is slurm, and this is no allocation of Slurm: begin with `salloc`")
    if launcher is None:
        allocated = set(_names([env[_SLURM]], f"${_SLURM}")) if env.get(_SLURM) else set()
        launcher = "slurm" if allocated.issuperset(names) else "ssh"
    return Inventory(names, launcher, table, source)
