"""Runs entries of the matrix on emulated fabrics, several at once: each worker has a fabric to itself.

The programs are this machine's, or those of another distribution's userland, on the urxe that is built here.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from rocelab.fabric.base import Finished, LaunchError, Node, Running
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.interconnects import urxe
from userland.roots import RDMA_CORE, Root, RootError, find

from .captured import packet_bytes
from .matrix import HERE, ROOT, Entry

#: The one link of each fabric, with room for the largest RDMA packets.
LINK: Final = "eth"
LINK_MTU_BYTES: Final = 4200
#: One run of an entry: the userland it runs in (None: this machine's), and its id.
Job = tuple[str | None, str]
#: How the names of the sockets start that urxe has for programs that listen with RDMA-CM.
LISTENER: Final = "@urxe-cm/listen/"
#: How long a server may take after its client has ended.
SERVER_ENDS_S: Final = 30.0


class MissingError(Exception):
    """A program is not installed. The text says which package has it."""


@dataclass(slots=True)
class Outcome:
    """What became of one entry: nothing wrong, or what was, with all that was printed."""

    problems: list[str] = field(default_factory=list)
    transcript: str = ""
    skipped: str | None = None
    wall_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where the programs of an entry are, and what they may write to."""

    #: An empty folder.
    scratch: Path
    #: The userland they run in; None for this machine's.
    root: Root | None = None
    #: What gives them the device, as `urxe run`; empty for the urxe that is built here.
    device: tuple[str, ...] = ()

    @property
    def words(self) -> dict[str, str]:
        """What stands for folders in the matrix."""
        programs = ROOT / ".build" / "programs"
        return {
            "here": str(HERE),
            "root": str(ROOT),
            "scratch": str(self.scratch),
            "pyverbs": "/usr" if self.root else str(programs / "pyverbs" / "usr"),
            "rdmacore": f"/{RDMA_CORE}" if self.root else str(programs / "rdma-core"),
            "libraries": self._libraries(),
            # Debian builds ucx_perftest with MPI since 13.
            "alone": "-P 0" if self.root else "",
        }

    def _libraries(self) -> str:
        """Where libraries are: the folder has the name of the architecture."""
        base = self.root.path if self.root else Path("/")
        found = next(iter(base.glob("usr/lib/*/libibverbs.so.1")), None)
        return f"/{found.parent.relative_to(base)}" if found else "/usr/lib"

    def has(self, name: str) -> bool:
        """Whether a program is there, or a file or folder with an absolute name."""
        if self.root:
            return self.root.which(name) is not None
        return shutil.which(name) is not None or (name.startswith("/") and Path(name).exists())

    def command(self, argv: Sequence[str]) -> list[str]:
        """What runs a command here, on urxe."""
        name, *options = self.device or (urxe().name, "run")
        if self.root is None:
            return [name, *options, "--", *argv]
        program = Path(shutil.which(name) or name)
        return self.root.inside([str(program), *options, "--", *argv], [program.parent])


def rdma_core_release(distro: str | None) -> int | None:
    """The release of rdma-core in a userland (None: this machine's), as its library's name has it; None without one."""
    try:
        base = find(distro).path if distro else Path("/")
    except RootError:
        return None
    library = next(iter(base.glob("usr/lib/*/libibverbs.so.1")), None)
    match = re.search(r"\.so\.1\.\d+\.(\d+)\.", library.readlink().name) if library else None
    return int(match[1]) if match else None


def run(
    entry: Entry,
    fabric: EmulatedFabric,
    distro: str | None = None,
    *,
    devices: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Outcome:
    """Run one entry on the first two nodes of a fabric, and judge it.

    `distro` names the userland whose programs run, and `devices` what gives the server and the client their devices
    (see Place).
    """
    outcome = Outcome()
    started_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rocelab-programs-") as scratch:
        try:
            root = find(distro) if distro else None
            server, client = (Place(Path(scratch), root, device) for device in devices)
            _run(entry, fabric, server, client, outcome)
        except (MissingError, RootError) as missing:
            outcome.skipped = str(missing)
        except Exception as error:  # noqa: BLE001  one entry's trouble is its own test's failure
            outcome.problems.append(f"{type(error).__name__}: {error}")
    outcome.wall_s = time.monotonic() - started_s
    return outcome


def command(line: str, entry: Entry, fabric: EmulatedFabric, place: Place) -> list[str]:
    """A command line of the matrix with everything in its place, on urxe."""
    server, client = fabric.nodes[:2]
    words = {
        "program": entry.program,
        "options": entry.options,
        "server": server.addresses[LINK],
        "client": client.addresses[LINK],
        "server6": server.addresses6.get(LINK, ""),
        "client6": client.addresses6.get(LINK, ""),
        "interface": server.interfaces[LINK],
        "device": f"urxe_{server.interfaces[LINK]}",
        **place.words,
    }
    # Options may name an address or a device as well.
    return place.command(shlex.split(_filled(_filled(line, words), words)))


def _filled(text: str, words: dict[str, Any]) -> str:
    return re.sub(r"\{([a-z0-9]+)\}", lambda match: str(words[match[1]]), text)


def _run(entry: Entry, fabric: EmulatedFabric, server_place: Place, place: Place, outcome: Outcome) -> None:
    _check_that_all_is_there(entry, place)
    launcher = NamespaceLauncher(fabric)
    env = {name: _filled(value, place.words) for name, value in entry.env.items()}
    on_server, on_client = fabric.nodes[:2]
    client = command(entry.client, entry, fabric, place)
    captures = {"URXE_PCAP": str(place.scratch / "%p.pcapng")} if entry.carries_bytes else {}
    if entry.server is None:
        finished = launcher.start(on_client, client, env={**env, **captures}).wait(entry.limit_s)
        _judge("client", client, finished, entry.proves, outcome, excuses=entry.excuses)
        _judge_captures(entry, place.scratch, outcome)
        return
    server = command(entry.server, entry, fabric, server_place)
    serving = launcher.start(on_server, server, env=env)
    try:
        _wait_until_ready(entry, launcher, on_server, serving)
        finished = launcher.start(on_client, client, env={**env, **captures}).wait(entry.limit_s)
        _judge("client", client, finished, entry.proves, outcome, excuses=entry.excuses)
        _judge_captures(entry, place.scratch, outcome)
    finally:
        served = serving.stop() if entry.server_stays else serving.wait(SERVER_ENDS_S if not outcome.problems else 0.5)
    _judge("server", server, served, entry.server_proves, outcome, excuses=entry.excuses, stopped=entry.server_stays)


def _check_that_all_is_there(entry: Entry, place: Place) -> None:
    if entry.needs is not None and not place.has(_filled(entry.needs, place.words)):
        needed = _filled(entry.needs, place.words)
        where = f"the userland of Debian {place.root.name} has no {needed}" if place.root else ""
        raise MissingError(where or f"there is no {needed}; {entry.remedy} installs {entry.package}")
    program = _executable(entry, place)
    if not place.has(program):
        where = f"the userland of Debian {place.root.name} has no {program}" if place.root else ""
        raise MissingError(where or f"there is no {program}; install the Debian package {entry.package}")


def _executable(entry: Entry, place: Place) -> str:
    """The program by its name, or the file where the command line has it."""
    first, *_ = entry.client.split()
    return _filled(first, {**place.words, "program": entry.program}) if first.endswith("/{program}") else entry.program


def _wait_until_ready(entry: Entry, launcher: NamespaceLauncher, node: Node, serving: Running) -> None:
    if entry.ready == "cm":
        _wait_until_listening(node, serving, entry.limit_s)
    elif entry.ready is not None:
        protocol, _, port = entry.ready.partition(":")
        kind: Literal["tcp", "udp"] = "udp" if protocol == "udp" else "tcp"
        launcher.wait_until_listening(node, serving, int(port), protocol=kind, timeout_s=entry.limit_s)
    time.sleep(entry.pause_s)


def _wait_until_listening(node: Node, serving: Running, limit_s: float) -> None:
    """Wait until a process of the node listens with RDMA-CM: urxe then has a Unix socket for others to find it."""
    sockets = Path(f"/proc/{node.pid}/net/unix")
    deadline_s = time.monotonic() + limit_s
    while LISTENER not in sockets.read_text(encoding="utf-8", errors="replace"):
        if (ended := serving.poll()) is not None:
            raise LaunchError(f"the server ended (exit status {ended.exit_status}) before it listened\n{ended.stderr}")
        if time.monotonic() > deadline_s:
            raise LaunchError(f"the server did not listen within {limit_s:g} s\n{''.join(serving.output())}")
        time.sleep(0.01)


def _judge(
    who: str,
    argv: Sequence[str],
    finished: Finished,
    proves: Sequence[str],
    outcome: Outcome,
    *,
    excuses: str | None,
    stopped: bool = False,
) -> None:
    said = finished.stdout + finished.stderr
    status = f"exit status {finished.exit_status}, {finished.wall_s:.1f} s"
    outcome.transcript += f"[{who}] $ {shlex.join(argv)}\n{said.rstrip()}\n[{who}: {status}]\n"
    if finished.timed_out:
        outcome.problems.append(f"the {who} was still running after its time limit")
    elif finished.exit_status != 0 and not stopped and not (excuses and re.search(excuses, said, re.MULTILINE)):
        outcome.problems.append(f"the {who} ended with {status}")
    outcome.problems += [
        f"the {who} did not print {pattern!r}" for pattern in proves if not re.search(pattern, said, re.MULTILINE)
    ]


def _judge_captures(entry: Entry, folder: Path, outcome: Outcome) -> None:
    if (carried_bytes := packet_bytes(folder)) < entry.carries_bytes:
        outcome.problems.append(f"urxe carried {carried_bytes} bytes for the client, not {entry.carries_bytes}")


def worker_count() -> int:
    """How many entries run at the same time. They wait more than they work."""
    return min(4, (os.cpu_count() or 1) + 1)
