"""MPI programs on the nodes of a fabric: which command line and environment start them, and over what they talk.

    mpi = own("openmpi")
    with launcher.remote_shell(env) as shell:
        argv = command(mpi, job, shell)
        finished = launcher.start(fabric.nodes[0], argv, env=env).wait(60)

Open MPI and MPICH start their daemons on other nodes with ssh, and take another program in its place: the launcher's
remote shell. So a node needs neither an sshd nor a key.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from rocelab.fabric.base import RemoteShell

Kind = Literal["openmpi", "mpich"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
RankOrder = Literal["slot", "node"]
#: Where `make setup-programs` puts the implementations that rocelab brings.
_OWN: Final = Path(__file__).resolve().parents[2] / ".build" / "programs"
_TITLES: Final[Mapping[Kind, str]] = {"openmpi": "Open MPI", "mpich": "MPICH"}
#: About how long mpirun takes to start and to end on an emulated fabric: once, and for each process.
_START_S: Final[Mapping[Kind, float]] = {"openmpi": 2.0, "mpich": 1.0}
_START_RANK_S: Final = 0.15


@dataclass(frozen=True, slots=True)
class Mpi:
    """An installed MPI implementation."""

    kind: Kind
    folder: Path
    """With mpiexec in it."""
    remedy: str
    """What to do when it is not there."""

    @property
    def title(self) -> str:
        """Its name."""
        return _TITLES[self.kind]

    @property
    def mpiexec(self) -> Path:
        """The program that starts others. MPICH's mpiexec may be of another process manager; hydra takes agents."""
        hydra = self.folder / "mpiexec.hydra"
        return hydra if self.kind == "mpich" and hydra.exists() else self.folder / "mpiexec"

    def start_s(self, ranks: int) -> float:
        """About how long starting and ending that many processes takes, for planning only."""
        return _START_S[self.kind] + _START_RANK_S * ranks


def own(kind: Kind) -> Mpi:
    """The implementation that rocelab brings: from PyPI, in an environment of its own.

    $ROCELAB_PROGRAMS names another folder than the checkout's.
    """
    root = Path(os.environ.get("ROCELAB_PROGRAMS", _OWN))
    return Mpi(kind, root / kind / "bin", f"`make setup-programs` installs {_TITLES[kind]} from PyPI")


def installed(kind: Kind, named: str) -> Mpi:
    """The implementation that a study names: ``system`` for the one in PATH, or the folder that it is in."""
    if named == "system":
        found = shutil.which("mpiexec")
        folder = Path(found).resolve().parent if found else Path("/usr/bin")
        return Mpi(kind, folder, f"the study wants the system's {_TITLES[kind]}: install it, or name its folder")
    folder = Path(named).expanduser()
    if (folder / "bin" / "mpiexec").exists():
        folder /= "bin"
    return Mpi(kind, folder, f"the study names {named} as the folder of {_TITLES[kind]}, and mpiexec is not in it")


@dataclass(frozen=True, slots=True)
class Transport:
    """What an MPI is told to talk over: environment and options, where `{interface}` is that of the link."""

    env: Mapping[str, str]
    options: tuple[str, ...] = ()
    device: bool = False
    """Whether it needs an RDMA device."""


#: UCX also warns of variables that only other parts of it read.
_UCX: Final = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
_UCX_TCP: Final = {**_UCX, "UCX_TLS": "tcp,self,sm", "UCX_NET_DEVICES": "{interface}"}
#: RC, which UCX connects by UD; and nothing else between nodes.
_UCX_RC: Final = {**_UCX, "UCX_TLS": "rc_v,self,sm", "UCX_NET_DEVICES": "urxe_{interface}:1"}
_OMPI_UCX: Final = ("--mca", "pml", "ucx", "--mca", "osc", "ucx")
#: Open MPI takes UCX only over transports and devices that it knows to be fast, unless it is told to.
_OMPI_UCX_ANY: Final = (
    *_OMPI_UCX,
    *("--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"),
)
_OMPI_BTL: Final = (
    *("--mca", "pml", "ob1", "--mca", "btl", "tcp,self,sm"),
    *("--mca", "btl_tcp_if_include", "{interface}"),
)
_OFI: Final = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
_CH4_UCX: Final = {"MPIR_CVAR_CH4_NETMOD": "ucx"}

#: By interconnect, and then by variant: the implementation, and what of it talks to the network.
_TRANSPORTS: Final[Mapping[str, Mapping[str, tuple[Kind, Transport]]]] = {
    "tcp": {
        "openmpi-ob1": ("openmpi", Transport({}, _OMPI_BTL)),
        "openmpi-ucx": ("openmpi", Transport(_UCX_TCP, _OMPI_UCX_ANY)),
        "mpich-ofi": ("mpich", Transport({**_OFI, "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "{interface}"})),
        "mpich-ucx": ("mpich", Transport({**_CH4_UCX, **_UCX_TCP})),
    },
    "soft-roce": {
        "openmpi-ucx": ("openmpi", Transport(_UCX_RC, _OMPI_UCX, device=True)),
        "mpich-ucx": ("mpich", Transport({**_CH4_UCX, **_UCX_RC}, device=True)),
        "mpich-ofi": (
            "mpich",
            Transport({**_OFI, "FI_PROVIDER": "verbs;ofi_rxm", "FI_VERBS_IFACE": "{interface}"}, device=True),
        ),
    },
}


def variants(interconnect: str) -> tuple[str, ...]:
    """The variants that an interconnect has at the MPI level."""
    return tuple(_TRANSPORTS.get(interconnect, ()))


def transport(interconnect: str, variant: str) -> tuple[Kind, Transport]:
    """The implementation and what it talks over; both names have to be known."""
    return _TRANSPORTS[interconnect][variant]


@dataclass(frozen=True, slots=True)
class Job:
    """One start of an MPI program."""

    argv: Sequence[str]
    hosts: Sequence[str]
    """Names of the nodes, one for each."""
    interface: str
    """The network interface to talk over, which has the same name on every node."""
    ranks_per_node: int = 1
    mapping: RankOrder = "slot"
    """`slot`: ranks 0, 1, ... on the first node, then the second. `node`: rank 0 on the first node, 1 on the second."""
    wrapper: Sequence[str] = field(default=())
    """Put in front of the program on every rank, such as ``urxe run --``."""

    @property
    def ranks(self) -> int:
        """How many processes."""
        return len(self.hosts) * self.ranks_per_node


def environment(job: Job, transport: Transport) -> dict[str, str]:
    """What mpirun and all it starts need in their environment, on every node."""
    return {name: value.replace("{interface}", job.interface) for name, value in transport.env.items()}


def command(mpi: Mpi, job: Job, transport: Transport, shell: RemoteShell) -> list[str]:
    """The command line of mpirun on the first node."""
    hosts = ",".join(f"{host}:{job.ranks_per_node}" for host in job.hosts)
    options = [option.replace("{interface}", job.interface) for option in transport.options]
    program = [*job.wrapper, *job.argv]
    if mpi.kind == "mpich":
        by_node = ["-ppn", "1"] if job.mapping == "node" else []
        return [
            *(str(mpi.mpiexec), "-launcher", "ssh", "-launcher-exec", shell.program),
            *("-hosts", hosts, "-n", str(job.ranks), *by_node, *options, *program),
        ]
    # Ranks that poll would keep the others from the core that they share; those with a core each keep it.
    shared = len(os.sched_getaffinity(0)) < job.ranks
    yields = ["--mca", "mpi_yield_when_idle", "1"] if shared else []
    by = "node" if job.mapping == "node" else "slot"
    # A daemon that let go of its session would be gone from the sight of who stops the job. Only mpirun starts
    # daemons, because only it can reach the remote shell from where it runs.
    return [
        *(str(mpi.mpiexec), "--allow-run-as-root", "--host", hosts, "-n", str(job.ranks)),
        *("--oversubscribe", "--bind-to", "none", "--map-by", by),
        *("--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", shell.program),
        *("--prtemca", "prte_leave_session_attached", "1", "--prtemca", "plm_ssh_no_tree_spawn", "1"),
        *yields,
        *options,
        *program,
    ]
