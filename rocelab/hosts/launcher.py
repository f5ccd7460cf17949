"""Starts programs on hosts, by asking their agents."""

from __future__ import annotations

import contextlib
import itertools
import os
from base64 import b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, Literal

from rocelab import peers
from rocelab.fabric.base import LaunchError, Node, RemoteShell, Running
from rocelab.hosts.agent import MARK
from rocelab.hosts.fabric import HostsFabric
from rocelab.hosts.running import HostRunning
from rocelab.hosts.session import ANSWER_LIMIT_S, Session

#: Below those that the kernel gives to clients (net.ipv4.ip_local_port_range).
PORT_FIRST: Final = 18_000
PORTS: Final = 12_000
#: Where Slurm says which allocation this process is in.
SLURM_JOB: Final = "SLURM_JOB_ID"


class HostsLauncher:
    """A `rocelab.fabric.base.Launcher` for hosts."""

    def __init__(self, fabric: HostsFabric, programs: Mapping[str, Mapping[str, str]] | None = None) -> None:
        """`programs` has for each host where what is asked for by a name, or a path of this machine, is there."""
        self._fabric = fabric
        self._programs = programs or {}
        self._shells = itertools.count(1)

    def start(
        self,
        node: Node,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cores: Collection[int] = (),
        log: Path | None = None,
    ) -> HostRunning:
        """See `rocelab.fabric.base.Launcher.start`. `env` is added to the environment of a login on the host."""
        there = self._programs.get(node.name, {})
        return HostRunning.start(
            self._session(node), [_there(word, there) for word in argv], env=env, cores=cores, log=log
        )

    def wait_until_listening(
        self,
        node: Node,
        running: Running,
        port: int,
        *,
        protocol: Literal["tcp", "udp"] = "tcp",
        timeout_s: float = 10.0,
    ) -> None:
        """See `rocelab.fabric.base.Launcher.wait_until_listening`."""
        assert isinstance(running, HostRunning)
        wanted = {"port": port, "protocol": protocol, "timeout_s": timeout_s, "program": running.number}
        state = self._session(node).ask("await-port", limit_s=timeout_s + ANSWER_LIMIT_S, **wanted)["state"]
        if state == "ended":
            finished = running.wait(ANSWER_LIMIT_S)
            raise LaunchError(
                f"{node.name}: the program ended (exit status {finished.exit_status}) before it listened on "
                f"{protocol} port {port}\n{finished.stdout}{finished.stderr}".rstrip()
            )
        if state == "late":
            said = "".join(running.output()).rstrip() or "(no output)"
            raise LaunchError(f"{node.name}: nothing listened on {protocol} port {port} within {timeout_s:g} s\n{said}")

    def is_listening(self, node: Node, port: int, *, protocol: Literal["tcp", "udp"] = "tcp") -> bool:
        """See `rocelab.fabric.base.Launcher.is_listening`."""
        return bool(self._session(node).ask("is-listening", port=port, protocol=protocol)["listening"])

    def free_ports(self, node: Node, count: int) -> Sequence[int]:
        """See `rocelab.fabric.base.Launcher.free_ports`."""
        found: Sequence[int] = self._session(node).ask("free-ports", first=PORT_FIRST, ports=PORTS, count=count)[
            "found"
        ]
        return found

    def core(self, node: Node, link: str) -> int:
        """The first that is near the rail's interface, where the host says which are."""
        cores = self._session(node).cores
        near = [core for core in self._fabric.rails[link].ends[node.name].cores if core in cores]
        return (near or cores)[0]

    def own_cores(self, node: Node, among: Sequence[Node]) -> Sequence[int]:  # noqa: ARG002, hosts share none
        """All that the host has."""
        return self._session(node).cores

    def separate_cores(self, nodes: Sequence[Node], count: int) -> Sequence[Sequence[int]]:
        """The first that each host has: hosts share none."""
        found = [self._session(node).cores[:count] for node in nodes]
        for node, cores in zip(nodes, found, strict=True):
            if len(cores) < count:
                raise LaunchError(f"{node.name} has {len(cores)} processors, and {count} are needed there")
        return found

    def sent_bytes(self, node: Node, interface: str) -> int:
        """See `rocelab.fabric.base.Launcher.sent_bytes`."""
        return int(self._session(node).ask("sent-bytes", interface=interface)["bytes"])

    def network_counters(self, node: Node, link: str) -> Mapping[str, int]:
        """See `rocelab.fabric.base.Launcher.network_counters`."""
        device = node.devices.get(link)
        name, port = (None, 1) if device is None else (device.device, device.number)
        asked = {"interface": node.interfaces[link], "device": name, "device_port": port}
        found: Mapping[str, int] = self._session(node).ask("network-counters", limit_s=ANSWER_LIMIT_S, **asked)["found"]
        return found

    def choose_congestion_control(self, nodes: Sequence[Node], link: str, control: str) -> None:
        """LaunchError for all but the hosts' own: their routes belong to others as well."""
        if control != peers.DEFAULT:
            raise LaunchError(
                f"{nodes[0].name}: TCP over {link} keeps the congestion control that the hosts give it, and is not "
                f"measured with {control!r}: rocelab does not change the routes of hosts"
            )

    def change_interfaces(
        self, nodes: Sequence[Node], link: str, wanted: Sequence[Mapping[str, int]]
    ) -> list[Mapping[str, int]]:
        """LaunchError if anything is wanted: the interfaces of hosts belong to others as well."""
        if any(wanted):
            raise LaunchError(f"{nodes[0].name}: rocelab does not change the interfaces of hosts ({link})")
        return [{} for _ in nodes]

    def remote_shell(
        self, env: Mapping[str, str], cores: Mapping[str, Collection[int]] | None = None
    ) -> AbstractContextManager[RemoteShell]:
        """See `rocelab.fabric.base.Launcher.remote_shell`: ssh, or a job step, from the first host to the others."""
        return self._shell(env, cores or {})

    @contextlib.contextmanager
    def _shell(self, env: Mapping[str, str], cores: Mapping[str, Collection[int]]) -> Iterator[RemoteShell]:
        first = self._session(self._fabric.nodes[0])
        python = first.introduction.result()["python"]
        own = {name: list(each) for name, each in cores.items()}
        marked = {MARK: self._fabric.run_name, **env}
        script = _ENTER.format(python=python, by=self._by(), env=marked, cores=own)
        name = f"enter-{next(self._shells)}"
        data = b64encode(script.encode()).decode()
        program = str(first.ask("write", name=name, data=data, mode=0o700)["path"])
        step = (*self._srun(), "--export=ALL") if self._fabric.inventory.table.mpi.start == "srun" else ()
        yield RemoteShell(program, {}, self._fabric.common_folder, step)

    def _by(self) -> list[str]:
        if self._fabric.inventory.launcher == "slurm":
            return [*self._srun(), "--nodes=1", "--ntasks=1", "--mpi=none", "--quiet", "--nodelist"]
        return ["ssh", "-oBatchMode=yes", *self._fabric.inventory.table.ssh_options]

    @staticmethod
    def _srun() -> tuple[str, ...]:
        return ("srun", f"--jobid={os.environ[SLURM_JOB]}", "--overlap", "--cpu-bind=none", "--mem=0")

    def _session(self, node: Node) -> Session:
        return self._fabric.sessions[node.name]


#: A program that takes what ssh takes, and starts the command on another host with an environment
#: and cores.
_ENTER: Final = """#!{python} -I
import os, shlex, sys
by, env, cores = {by!r}, {env!r}, {cores!r}
words = sys.argv[1:]
while words and words[0].startswith("-"):
    words.pop(0)
host, *command = words
before = ["env", *(name + "=" + value for name, value in env.items())]
if host in cores:
    before += ["taskset", "-c", ",".join(map(str, cores[host]))]
text = shlex.join([*before, "sh", "-c", " ".join(command)])
# ssh has a shell read the text. srun does not, and describes its own step to what it starts.
names = r"env | sed -n 's/^\\(SLURMD*_[A-Z_]*\\|PMIX*_[A-Z_]*\\)=.*/\\1/p'"
forget = "for each in $(" + names + "); do [ $each = SLURM_CONF ] || unset $each; done; "
os.execvp(by[0], [*by, host, text] if by[0] == "ssh" else [*by, host, "sh", "-c", forget + text])
"""


def _there(word: str, programs: Mapping[str, str]) -> str:
    """A word of a command line with the paths of this machine replaced by those of the host."""
    if word in programs:
        return programs[word]
    if " " not in word:
        return word
    # A script that starts programs.
    for ours, theirs in programs.items():
        if "/" in ours:
            word = word.replace(ours, theirs)
    return word
