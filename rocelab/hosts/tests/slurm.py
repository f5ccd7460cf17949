"""A real Slurm for tests: on nodes of an emulated fabric, with slurmctld and munged on the first and slurmd on all."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rocelab.fabric import emulated
from rocelab.fabric.base import Finished, LinkProfile
from rocelab.hosts.tests.cluster import UNPACKED
from rocelab.launch.namespace import NamespaceLauncher, ProgramRunning

_LIMIT_S = 60.0
_CONFIG = """
ClusterName=rocelab
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
PluginDir={plugins}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
TmpFS={folder}/tmp-%n
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
"""
#: slurmd looks for its step daemon and for PMIx where packages would have them, and for a hierarchy
#: of control groups.
_PREPARE = """
mount -t overlay -o "lowerdir=$0/sbin:/usr/sbin" overlay /usr/sbin &&
mount -t overlay -o "lowerdir=$0/lib:$LIBRARIES:/usr/lib/${LIBRARIES##*/}" overlay "/usr/lib/${LIBRARIES##*/}" &&
mount -t cgroup2 none /sys/fs/cgroup && exec "$@"
"""


@dataclass
class SlurmCluster:
    """Nodes of which the first takes jobs for all."""

    fabric: emulated.EmulatedFabric
    launcher: NamespaceLauncher
    env: Mapping[str, str]

    def salloc(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None) -> Finished:
        """Run a command in an allocation of all nodes."""
        nodes = f"-N{len(self.fabric.nodes)}"
        command = [str(UNPACKED / "usr/bin/salloc"), "--quiet", nodes, *argv]
        # slurmd has put the libraries where they belong, and jobs inherit this: Open MPI has a PMIx
        # of its own.
        own = {name: value for name, value in self.env.items() if name != "LD_LIBRARY_PATH"}
        return self.launcher.start(self.fabric.nodes[0], command, env={**own, **(env or {})}).wait(4 * _LIMIT_S)


@contextlib.contextmanager
def slurm_cluster(folder: Path, links: list[LinkProfile], nodes: int) -> Iterator[SlurmCluster]:
    """A fabric whose nodes are all idle in Slurm. Raises TimeoutError where they are not in time."""
    programs = UNPACKED / "usr/sbin"
    libraries = next((UNPACKED / "usr/lib").glob("*-linux-gnu"))
    env = {
        "LD_LIBRARY_PATH": f"{libraries}:{libraries}/slurm-wlm",
        "PATH": f"{UNPACKED}/usr/bin:/usr/local/bin:/usr/sbin:/usr/bin:/bin",
        "SLURM_CONF": str(folder / "slurm.conf"),
    }
    with emulated.up(links, emulated.default_names(nodes)) as fabric:
        launcher = NamespaceLauncher(fabric)
        _write(folder, fabric, libraries / "slurm-wlm")
        first = fabric.nodes[0]
        munged = [
            *(str(programs / "munged"), "--foreground", "--force", f"--key-file={folder}/munge.key"),
            *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
            *(f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
        ]
        running: list[ProgramRunning] = [launcher.start(first, munged, env=env)]
        try:
            _until((folder / "munge.socket").exists)
            running.append(launcher.start(first, [str(programs / "slurmctld-wlm"), "-D"], env=env))
            for node in fabric.nodes:
                slurmd = [str(programs / "slurmd-wlm"), "-D", "-N", node.name]
                prepared = ["sh", "-c", _PREPARE, str(folder), *slurmd]
                running.append(launcher.start(node, prepared, env={**env, "LIBRARIES": str(libraries)}))
            made = SlurmCluster(fabric, launcher, env)
            _until(lambda: _idle(made) == nodes)
            yield made
        finally:
            for each in reversed(running):
                each.stop()


def _write(folder: Path, fabric: emulated.EmulatedFabric, plugins: Path) -> None:
    for name in (
        "state",
        "sbin",
        "lib/pmix2/lib",
        *(f"{kind}{node.name}" for kind in ("spool/", "tmp-") for node in fabric.nodes),
    ):
        (folder / name).mkdir(parents=True)
    (folder / "sbin/slurmstepd").symlink_to(UNPACKED / "usr/sbin/slurmstepd-wlm")
    # Its plugin opens the library by a name that only the package for developers has.
    (folder / "lib/pmix2/lib/libpmix.so").symlink_to("libpmix.so.2")
    (folder / "munge.key").write_bytes(b"a key for a test" * 8)
    (folder / "munge.key").chmod(0o400)
    (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nConstrainCores=no\nConstrainRAMSpace=no\n")
    addresses = {node.name: next(iter(node.addresses.values())) for node in fabric.nodes}
    first, *_ = addresses
    lines = [
        _CONFIG.format(folder=folder, plugins=plugins),
        f"SlurmctldHost={first}({addresses[first]})",
        *(f"NodeName={name} NodeAddr={address} CPUs=2 State=UNKNOWN" for name, address in addresses.items()),
        f"PartitionName=all Nodes={','.join(addresses)} Default=YES MaxTime=INFINITE State=UP",
    ]
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")


def _idle(cluster: SlurmCluster) -> int:
    sinfo = [str(UNPACKED / "usr/bin/sinfo"), "--noheader", "--Node", "--format=%T"]
    said = cluster.launcher.start(cluster.fabric.nodes[0], sinfo, env=cluster.env).wait(_LIMIT_S).stdout
    return said.split().count("idle")


def _until(true: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + _LIMIT_S
    while not true():
        if time.monotonic() > deadline_s:
            raise TimeoutError("Slurm was not up in time")
        time.sleep(0.05)
