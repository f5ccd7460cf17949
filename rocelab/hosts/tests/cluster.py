"""Hosts for tests: nodes of an emulated fabric, each with a real sshd, reached with keys made for the test."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile, Node
from rocelab.launch.namespace import NamespaceLauncher, ProgramRunning

#: Where `make setup-programs` unpacks sshd and Slurm, which are not installed, because their
#: services would be started.
PROGRAMS = Path(os.environ.get("ROCELAB_PROGRAMS", Path(__file__).resolve().parents[3] / ".build" / "programs"))
UNPACKED = PROGRAMS / "cluster"
#: For what is unpacked and not installed.
SSHD_ENV = {"LD_LIBRARY_PATH": ":".join(map(str, (UNPACKED / "usr/lib").glob("*-linux-gnu")))}
PORT = 22
#: The pages of sshd's own that a node needs: its user, and the folder that it confines itself to.
_PREPARE = """
mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd
if ! grep -q ^sshd: /etc/passwd; then
    cp /etc/passwd /run/passwd
    echo sshd:x:65533:65534::/run/sshd:/usr/sbin/nologin >>/run/passwd
    mount --bind /run/passwd /etc/passwd
fi
exec "$@"
"""


@dataclass
class SshCluster:
    """Nodes with sshd. The test's own process is outside; its ssh goes in through a node's namespace."""

    fabric: emulated.EmulatedFabric
    launcher: NamespaceLauncher
    folder: Path
    servers: dict[str, ProgramRunning]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.fabric.nodes]

    def start_sshd(self, name: str) -> None:
        """Let a host be reached again."""
        node = next(node for node in self.fabric.nodes if node.name == name)
        self.servers[name] = start_sshd(self.launcher, node, self.folder)
        self.launcher.wait_until_listening(node, self.servers[name], PORT, timeout_s=60)

    def hosts_toml(self, more: str = "", *, name: str = "outside", hosts: str | None = None) -> Path:
        """A file of hosts, all or some, with ssh's configuration for use `outside` or `inside`."""
        path = self.folder / f"hosts-{name}.toml"
        listed = hosts or ",".join(self.names)
        text = f'hosts = "{listed}"\nssh_options = ["-F", "{self.folder / name}"]\n{more}\n'
        path.write_text(text, encoding="utf-8")
        return path


@contextlib.contextmanager
def ssh_cluster(folder: Path, links: list[LinkProfile], nodes: int) -> Iterator[SshCluster]:
    """A fabric whose nodes have sshd."""
    prepare(folder)
    with emulated.up(links, emulated.default_names(nodes)) as fabric:
        launcher = NamespaceLauncher(fabric)
        for name, is_outside in (("outside", True), ("inside", False)):
            (folder / name).write_text(client_config(folder, _ways(fabric, outside=is_outside)))
        servers = {node.name: start_sshd(launcher, node, folder) for node in fabric.nodes}
        for node in fabric.nodes:
            launcher.wait_until_listening(node, servers[node.name], PORT, timeout_s=60)
        try:
            yield SshCluster(fabric, launcher, folder, servers)
        finally:
            for server in servers.values():
                server.stop()


def start_sshd(launcher: NamespaceLauncher, node: Node, folder: Path) -> ProgramRunning:
    # Each host has cores of its own as long as there are enough, as machines have.
    cores = (launcher.core(node, next(iter(node.addresses))),)
    return launcher.start(node, sshd(folder), env=SSHD_ENV, cores=cores)


def prepare(folder: Path) -> None:
    """Make the keys and sshd's configuration."""
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    (folder / "authorized").write_text((folder / "user.pub").read_text())
    known = (folder / "host.pub").read_text().split()[:2]
    (folder / "known").write_text(f"* {' '.join(known)}\n")
    (folder / "sshd").write_text(_server_config(folder))


def sshd(folder: Path) -> list[str]:
    """What is an sshd on a machine of its own, as root, in the environment of `SSHD_ENV`."""
    return ["sh", "-c", _PREPARE, "sh", str(UNPACKED / "usr/sbin/sshd"), "-D", "-e", "-f", str(folder / "sshd")]


def _server_config(folder: Path) -> str:
    settings: Mapping[str, object] = {
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized",
        "PermitRootLogin": "yes",
        "StrictModes": "no",
        "UsePAM": "no",
        "PidFile": "none",
        "MaxStartups": 100,
    }
    return "".join(f"{name} {value}\n" for name, value in settings.items())


def _ways(fabric: emulated.EmulatedFabric, *, outside: bool) -> dict[str, dict[str, str]]:
    link = fabric.links[-1].id
    ways = {}
    for node in fabric.nodes:
        address = node.addresses[link]
        ways[node.name] = {"HostName": address}
        if outside:
            relay = f"exec 3<>/dev/tcp/{address}/{PORT}; cat <&3 & cat >&3"
            enter = ["nsenter", "--net", "--target", str(node.pid), "bash", "-c", relay]
            ways[node.name]["ProxyCommand"] = shlex.join(enter)
    return ways


def client_config(folder: Path, ways: Mapping[str, Mapping[str, str]]) -> str:
    """The configuration of ssh that reaches hosts, each with settings of its own."""
    text = f"IdentityFile {folder / 'user'}\nIdentitiesOnly yes\nUserKnownHostsFile {folder / 'known'}\n"
    for host, settings in ways.items():
        text += f"Host {host}\n" + "".join(f"  {name} {value}\n" for name, value in settings.items())
    return text
