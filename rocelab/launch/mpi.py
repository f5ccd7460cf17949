"""MPI programs on the nodes of a fabric: which command line and environment start them, and over what they talk.

    mpi = own("openmpi")
    with launcher.remote_shell(env) as shell:
        argv = command(mpi, job, shell)
        finished = launcher.start(fabric.nodes[0], argv, env=env).wait(60)

Open MPI and MPICH start their daemons on other nodes with ssh, and take another program in its place: the launcher's
remote shell. So a node needs neither an sshd nor a key.
"""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from rocelab.devices import ROCE_V1_DISTANCE, DevicePort
from rocelab.fabric.base import RemoteShell
from rocelab.programs import fetched, remedy

Kind = Literal["openmpi", "mpich"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
RankOrder = Literal["slot", "node"]
_TITLES: Final[Mapping[Kind, str]] = {"openmpi": "Open MPI", "mpich": "MPICH"}
#: About how long mpirun takes to start and to end on an emulated fabric: once, and for each
#: process.
_START_S: Final[Mapping[Kind, float]] = {"openmpi": 2.0, "mpich": 1.0}
_START_RANK_S: Final = 0.15
#: What an mpiexec says of itself: Open MPI's own words, and those of MPICH's process manager.
_VERSIONS: Final[Mapping[Kind, re.Pattern[str]]] = {
    "openmpi": re.compile(r"\(Open MPI\) (\d\S*)"),
    "mpich": re.compile(r"^HYDRA build details:\s+Version:\s+(\d\S*)", re.MULTILINE),
}
#: The oldest release that takes the options of `command`: Open MPI 4 has others for starting
#: daemons and choosing a transport, and MPICH 3 chooses its transport when it is built.
_OLDEST: Final[Mapping[Kind, int]] = {"openmpi": 5, "mpich": 4}
#: Where a system has several, each has a name of its own; mpiexec is one of them, and MPICH's may
#: be another manager's.
_PROGRAMS: Final[Mapping[Kind, tuple[str, ...]]] = {
    "openmpi": ("mpiexec.openmpi", "mpiexec"),
    "mpich": ("mpiexec.hydra", "mpiexec.mpich", "mpiexec"),
}
_VERSION_LIMIT_S: Final = 20.0
#: What the trace of that crash names.
_LOST_START: Final = ("Segmentation fault", "mca_pml_ob1_recv_frag_callback_match", "ompi_mpi_init")
#: How an MPI finds its ranks where Slurm starts them, as `srun --mpi=list` names it.
_PROCESS_MANAGEMENT: Final[Mapping[Kind, str]] = {"openmpi": "pmix", "mpich": "pmi2"}


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
        """The program that starts others."""
        programs = [self.folder / name for name in _PROGRAMS[self.kind]]
        return next((program for program in programs if program.exists()), programs[-1])

    @property
    def version(self) -> str | None:
        """Its version, by its own words; None if it is not there or is not what it is taken for."""
        found = _VERSIONS[self.kind].search(_words(self.mpiexec))
        return found[1] if found is not None else None

    @property
    def problem(self) -> str | None:
        """Why it cannot be used although it is there."""
        if not self.mpiexec.exists():
            return None
        version = self.version
        if version is None:
            return f"{self.mpiexec} is not the {self.title} that it is taken for: {_what_it_is(_words(self.mpiexec))}"
        if int(version.split(".")[0]) < _OLDEST[self.kind]:
            return f"{self.mpiexec} is {self.title} {version}; {_OLDEST[self.kind]} and newer can be used"
        return None

    def start_s(self, ranks: int) -> float:
        """About how long starting and ending that many processes takes, for planning only."""
        return _START_S[self.kind] + _START_RANK_S * ranks


def own(kind: Kind) -> Mpi:
    """The implementation that rocelab brings: from PyPI, in an environment of its own."""
    words = f"{_TITLES[kind]}, from PyPI: {remedy('make setup-programs', 'ROCELAB_PROGRAMS')}"
    return Mpi(kind, fetched() / kind / "bin", words)


def installed(kind: Kind, named: str) -> Mpi:
    """The implementation that a study names: ``system`` for the one in PATH, or the folder that it is in."""
    if named == "system":
        found = next((path for name in _PROGRAMS[kind] if (path := shutil.which(name)) is not None), None)
        folder = Path(found).parent if found else Path("/usr/bin")
        return Mpi(kind, folder, f"the study wants the system's {_TITLES[kind]}: install it, or name its folder")
    folder = Path(named).expanduser()
    if (folder / "bin" / "mpiexec").exists():
        folder /= "bin"
    return Mpi(kind, folder, f"the study names {named} as the folder of {_TITLES[kind]}, and mpiexec is not in it")


@functools.cache
def _words(mpiexec: Path) -> str:
    """All that a program says when it is asked for its version."""
    try:
        done = subprocess.run(
            [mpiexec, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_LIMIT_S
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"it cannot be asked for its version ({error})"
    return done.stdout + done.stderr


def _what_it_is(words: str) -> str:
    """What a program that is something else says it is."""
    for kind, version in _VERSIONS.items():
        if (found := version.search(words)) is not None:
            return f"it is {_TITLES[kind]} {found[1]}"
    return f"it says {next(iter(words.strip().splitlines()), 'nothing')!r} of itself"


@dataclass(frozen=True, slots=True)
class Transport:
    """What an MPI is told to talk over, by its environment: Open MPI reads each of its parameters there, too.

    `{interface}` is the link's; where nodes have several names for it, the value is a list of all. `{device}` is an
    RDMA device with its port, and `{gid_index}` the entry of its table of addresses; what has one that is not known is
    left out.
    """

    env: Mapping[str, str]
    urxe: bool = False
    """Whether urxe gives programs the RDMA device that it needs."""


#: UCX also warns of variables that only other parts of it read.
_UCX: Final = {"UCX_WARN_UNUSED_ENV_VARS": "n"}
#: Received in pieces of 1 MiB instead of 64 KiB: 1.1 to 1.3 times the bandwidth, and the same
#: latency (docs/mpi.md).
_UCX_TCP: Final = {
    **_UCX,
    "UCX_TLS": "tcp,self,sm",
    "UCX_NET_DEVICES": "{interface}",
    "UCX_TCP_RX_SEG_SIZE": "1m",
}
#: RC, which UCX connects by UD; and nothing else between nodes. A weak fence orders what goes over
#: one queue pair, which is all there is. For a strong one UCX reads 8 bytes at address 0 with a key
#: that no memory has (docs/mpi.md).
_UCX_RC: Final = {**_UCX, "UCX_TLS": "rc_v,self,sm", "UCX_NET_DEVICES": "urxe_{interface}:1", "UCX_FENCE_MODE": "weak"}
#: The same over RoCE v1: with the GID of the interface's first address, which is IPv4's.
_UCX_RC_ROCE_V1: Final = {**_UCX_RC, "URXE_ROCE_V1": "on", "UCX_IB_GID_INDEX": str(ROCE_V1_DISTANCE)}
#: Over a device that is there, with the device's own way of RC where UCX knows one.
_UCX_DEVICE: Final = {
    **_UCX,
    "UCX_TLS": "rc,self,sm",
    "UCX_NET_DEVICES": "{device}",
    "UCX_IB_GID_INDEX": "{gid_index}",
}
_OMPI_UCX: Final = {"OMPI_MCA_pml": "ucx", "OMPI_MCA_osc": "ucx"}
#: Open MPI takes UCX only over transports and devices that it knows to be fast, unless it is told
#: to.
_OMPI_UCX_ANY: Final = {
    **_OMPI_UCX,
    "OMPI_MCA_opal_common_ucx_tls": "any",
    "OMPI_MCA_opal_common_ucx_devices": "any",
}
_OMPI_BTL: Final = {
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self,sm",
    "OMPI_MCA_btl_tcp_if_include": "{interface}",
    # It would take IPv6, where an interface has it; all others are measured over IPv4.
    "OMPI_MCA_btl_tcp_disable_family": "6",
}
_OFI: Final = {"MPIR_CVAR_CH4_NETMOD": "ofi"}
_CH4_UCX: Final = {"MPIR_CVAR_CH4_NETMOD": "ucx"}
#: libfabric finds the device of the interface by RDMA-CM.
_OFI_VERBS: Final = {**_OFI, "FI_PROVIDER": "verbs;ofi_rxm", "FI_VERBS_IFACE": "{interface}"}
_OMPI_OFI_VERBS: Final = {
    "OMPI_MCA_pml": "cm",
    "OMPI_MCA_mtl": "ofi",
    "OMPI_MCA_mtl_ofi_provider_include": "verbs;ofi_rxm",
    "FI_PROVIDER": "verbs;ofi_rxm",
    "FI_VERBS_IFACE": "{interface}",
}
#: The same device over TCP connections, which RDMA-CM makes. UCX has no iWARP.
_IWARP: Final = {"URXE_TRANSPORT": "iwarp"}
_UCX_ON_DEVICE: Final[Mapping[str, tuple[Kind, Transport]]] = {
    "openmpi-ucx": ("openmpi", Transport({**_UCX_DEVICE, **_OMPI_UCX_ANY})),
    "mpich-ucx": ("mpich", Transport({**_CH4_UCX, **_UCX_DEVICE})),
}
_OFI_ON_DEVICE: Final[Mapping[str, tuple[Kind, Transport]]] = {"mpich-ofi": ("mpich", Transport(_OFI_VERBS))}

#: By interconnect, and then by variant: the implementation, and what of it talks to the network.
_TRANSPORTS: Final[Mapping[str, Mapping[str, tuple[Kind, Transport]]]] = {
    "tcp": {
        "openmpi-ob1": ("openmpi", Transport(_OMPI_BTL)),
        "openmpi-ucx": ("openmpi", Transport({**_UCX_TCP, **_OMPI_UCX_ANY})),
        "mpich-ofi": ("mpich", Transport({**_OFI, "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "{interface}"})),
        "mpich-ucx": ("mpich", Transport({**_CH4_UCX, **_UCX_TCP})),
    },
    "soft-roce": {
        "openmpi-ucx": ("openmpi", Transport({**_UCX_RC, **_OMPI_UCX}, urxe=True)),
        "mpich-ucx": ("mpich", Transport({**_CH4_UCX, **_UCX_RC}, urxe=True)),
        "mpich-ofi": ("mpich", Transport(_OFI_VERBS, urxe=True)),
        "openmpi-ofi": ("openmpi", Transport(_OMPI_OFI_VERBS, urxe=True)),
        "openmpi-ucx-roce-v1": ("openmpi", Transport({**_UCX_RC_ROCE_V1, **_OMPI_UCX}, urxe=True)),
        "mpich-ucx-roce-v1": ("mpich", Transport({**_CH4_UCX, **_UCX_RC_ROCE_V1}, urxe=True)),
    },
    "soft-iwarp": {
        "mpich-ofi": ("mpich", Transport({**_OFI_VERBS, **_IWARP}, urxe=True)),
        "openmpi-ofi": ("openmpi", Transport({**_OMPI_OFI_VERBS, **_IWARP}, urxe=True)),
    },
    # Devices that hosts have.
    "infiniband": _UCX_ON_DEVICE,
    "roce": {**_UCX_ON_DEVICE, **_OFI_ON_DEVICE},
    "rxe": {**_UCX_ON_DEVICE, **_OFI_ON_DEVICE},
    "iwarp": _OFI_ON_DEVICE,
    "siw": _OFI_ON_DEVICE,
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
    interfaces: Sequence[str]
    """The network interface to talk over on each node."""
    ranks_per_node: int = 1
    mapping: RankOrder = "slot"
    """`slot`: ranks 0, 1, ... on the first node, then the second. `node`: rank 0 on the first node, 1 on the second."""
    cores: int | None = None
    """How many cores its nodes have of their own, together; None: at least one for each process."""
    devices: Sequence[DevicePort] = ()
    """The RDMA device to talk over on each node; none where urxe gives one, or there is none."""
    wrapper: Sequence[str] = field(default=())
    """Put in front of the program on every rank, such as ``urxe run --``."""

    @property
    def ranks(self) -> int:
        """How many processes."""
        return len(self.hosts) * self.ranks_per_node


def environment(mpi: Mpi, job: Job, transport: Transport) -> dict[str, str]:
    """What mpirun and all it starts need in their environment, on every node."""
    made = {name: _filled(value, job) for name, value in transport.env.items()}
    # Ranks that poll would keep the others from the core that they share; those with a core each
    # keep it.
    if mpi.kind == "openmpi" and job.cores is not None and job.cores < job.ranks:
        made["OMPI_MCA_mpi_yield_when_idle"] = "1"
    return {name: value for name, value in made.items() if value is not None}


def _filled(text: str, job: Job) -> str | None:
    """A value of a transport for a job; None if it has something that is not known of the job's devices."""
    if "{gid_index}" in text:
        # One environment is for all nodes; where their tables differ, UCX looks for itself.
        indices = {device.gid_index for device in job.devices}
        (index,) = indices if len(indices) == 1 else (None,)
        return None if index is None else text.replace("{gid_index}", str(index))
    for name, values in (
        ("{interface}", job.interfaces),
        ("{device}", [f"{each.device}:{each.number}" for each in job.devices]),
    ):
        if name in text:
            return ",".join(text.replace(name, value) for value in dict.fromkeys(values))
    return text


def command(mpi: Mpi, job: Job, shell: RemoteShell) -> list[str]:
    """The command line that starts a job, on the first node: by mpirun, or where the site wants it by job steps."""
    program = [*job.wrapper, *job.argv]
    if shell.job_step:
        return [*shell.job_step, *_job_step(mpi, job, shell), *program]
    hosts = ",".join(f"{host}:{job.ranks_per_node}" for host in job.hosts)
    # Both would else want the folder of mpirun on all nodes; MPICH fails where it is not there.
    folder = [] if shell.folder is None else ["-wdir", shell.folder]
    if mpi.kind == "mpich":
        by_node = ["-ppn", "1"] if job.mapping == "node" else []
        return [
            *(str(mpi.mpiexec), "-launcher", "ssh", "-launcher-exec", shell.program),
            *("-hosts", hosts, "-n", str(job.ranks), *by_node, *folder, *program),
        ]
    by = "node" if job.mapping == "node" else "slot"
    # A daemon that let go of its session would be gone from the sight of the code that stops the
    # job. Only mpirun starts daemons, because only it can reach the remote shell from where it
    # runs.
    return [
        *(str(mpi.mpiexec), "--allow-run-as-root", "--host", hosts, "-n", str(job.ranks)),
        *("--oversubscribe", "--bind-to", "none", "--map-by", by),
        *("--prtemca", "plm", "ssh", "--prtemca", "plm_ssh_agent", shell.program),
        *("--prtemca", "prte_leave_session_attached", "1", "--prtemca", "plm_ssh_no_tree_spawn", "1"),
        *folder,
        *program,
    ]


def lost_its_start(mpi: Mpi, stderr: str) -> bool:
    """A rank crashed before its program began, by a known fault of Open MPI 5 and not of what it was to measure.

    MPI_Init sets up MPI_COMM_WORLD for `ob1` only after it has waited for all ranks. A message of a rank that was told
    earlier, as it happens where Slurm starts them, finds no communicator (open-mpi/ompi, issues 11438 and 12495).
    """
    return mpi.kind == "openmpi" and all(name in stderr for name in _LOST_START)


def _job_step(mpi: Mpi, job: Job, shell: RemoteShell) -> list[str]:
    """Options of srun, which tells ranks of each other as their MPI wants it."""
    folder = [] if shell.folder is None else [f"--chdir={shell.folder}"]
    return [
        f"--mpi={_PROCESS_MANAGEMENT[mpi.kind]}",
        *(f"--nodes={len(job.hosts)}", f"--nodelist={','.join(job.hosts)}"),
        *(f"--ntasks={job.ranks}", f"--ntasks-per-node={job.ranks_per_node}"),
        f"--distribution={'cyclic' if job.mapping == 'node' else 'block'}",
        *folder,
    ]
