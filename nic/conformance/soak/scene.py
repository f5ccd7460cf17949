"""One run: a program on its nodes, what is done to it meanwhile, and what it holds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rocelab.fabric.base import Node, Running
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.launch.namespace import NamespaceLauncher

LINK = "eth"
#: On which perftest's server listens.
PORT = 18515
#: How long what a program held may take to be gone after its end.
GONE_S = 5.0
#: States of TCP sockets that a process has (include/net/tcp_states.h of Linux): established, closed
#: by the peer alone, listening. Others are the kernel's, which it keeps for a while.
OWNED_TCP_STATES = {"01", "08", "0A"}
#: What a node loses of TCP's packets that come to it; of every so many.
LOSS_OF = 1000
LOSSES = """
table inet lossy {{
    chain input {{
        type filter hook input priority 0;
        meta l4proto tcp numgen random mod {of} < {lost} drop
    }}
}}
"""


@dataclass(frozen=True, slots=True)
class Holding:
    """What the processes of a program hold, all together."""

    processes: int
    descriptors: int
    memory_bytes: int


@dataclass(slots=True)
class Scene:
    """Where a program runs and what of it runs."""

    fabric: EmulatedFabric
    launcher: NamespaceLauncher
    #: Part of the command line of each process that counts.
    word: str
    victim: Node
    started: list[Running] = field(default_factory=list)

    def victims(self) -> list[int]:
        """The program's processes on the node to which things happen, as that node numbers them."""
        return [pid for pid, _ in _processes(self.victim, self.word)]

    def on_victim(self, *argv: str) -> None:
        """Run a command there, which has to succeed."""
        self._run(self.victim, *argv)

    def _run(self, node: Node, *argv: str) -> None:
        finished = self.launcher.start(node, argv).wait(10.0)
        if finished.exit_status != 0:
            raise RuntimeError(f"{' '.join(argv)}: {finished.stderr.strip()}")

    @contextlib.contextmanager
    def losses(self, percent: float) -> Iterator[None]:
        """Let the nodes lose so much of TCP's packets meanwhile."""
        rules = LOSSES.format(of=LOSS_OF, lost=round(percent / 100 * LOSS_OF))
        for node in self.fabric.nodes if percent else ():
            self._run(node, "sh", "-c", f"echo '{rules}' | nft -f -")
        try:
            yield
        finally:
            for node in self.fabric.nodes if percent else ():
                self._run(node, "nft", "delete", "table", "inet", "lossy")

    def signal(self, name: str) -> None:
        """Send a signal to the program's processes there."""
        if victims := self.victims():
            self.on_victim("kill", f"-{name}", *map(str, victims))

    def holding(self) -> Holding:
        """What the program holds now."""
        page_bytes = os.sysconf("SC_PAGE_SIZE")
        processes = descriptors = memory_bytes = 0
        for node in self.fabric.nodes:
            for _, folder in _processes(node, self.word):
                with contextlib.suppress(OSError):
                    memory_bytes += int((folder / "statm").read_text().split()[1]) * page_bytes
                    descriptors += sum(1 for _ in (folder / "fd").iterdir())
                    processes += 1
        return Holding(processes, descriptors, memory_bytes)

    def leftovers(self) -> list[str]:
        """What is still there on the nodes after the end, when it had the time to go."""
        deadline_s = time.monotonic() + GONE_S
        while (left := self._left()) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        return left

    def _left(self) -> list[str]:
        left = []
        for node in self.fabric.nodes:
            left += [f"process {pid} on {node.name}" for pid, _ in _processes(node, self.word)]
            net = Path(f"/proc/{node.pid}/net")
            ports = [line for name in ("udp", "udp6") for line in (net / name).read_text().splitlines()[1:]]
            left += [f"UDP socket {line.split()[1]} on {node.name}" for line in ports]
            streams = [line.split() for name in ("tcp", "tcp6") for line in (net / name).read_text().splitlines()[1:]]
            owned = [words[1] for words in streams if words[3] in OWNED_TCP_STATES]
            left += [f"TCP socket {address} on {node.name}" for address in owned]
            frames = (net / "packet").read_text().splitlines()[1:]
            left += [f"packet socket on {node.name}" for _ in frames]
            names = [line.split()[-1] for line in (net / "unix").read_text().splitlines() if "@urxe" in line]
            left += [f"socket {name} on {node.name}" for name in names]
        return left


def _processes(node: Node, word: str) -> Iterator[tuple[int, Path]]:
    """The processes of a node with this word in their command line, and their folders in its /proc."""
    for folder in Path(f"/proc/{node.pid}/root/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                words = (folder / "cmdline").read_text(errors="replace").split("\0")
                # Shells, mpiexec and `ssh` have it in theirs, too, as a part of what they are to
                # start.
                if words[0].rpartition("/")[2] == word or (word.endswith(".py") and words[1:2] == [word]):
                    yield int(folder.name), folder
