"""Runs the commands of docs/rdma-by-hand.md as its reader does: in several terminals, one command after the other.

A block of the page is what one terminal shows: a command behind each `$`, and below it what it prints. `...` stands
for what is left out, and words with digits in them are others in each run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab.fabric.base import Finished, Running
from rocelab.fabric.emulated import EmulatedFabric
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.interconnects import urxe

PAGE: Final = Path(__file__).resolve().parents[3] / "docs" / "rdma-by-hand.md"
#: Which package has a program; every other one is everywhere.
PACKAGES: Final = {
    "ibv_devinfo": "ibverbs-utils",
    "ibv_rc_pingpong": "ibverbs-utils",
    "ib_send_lat": "perftest",
    "ib_write_bw": "perftest",
    "tshark": "tshark",
}
#: Where the servers of the page listen, those of ibverbs-utils and of perftest.
SERVER_PORT: Final = 18515
#: Where the page starts servers, and where it looks at what runs in the other terminals.
SERVING: Final = "Terminal 1"
WATCHING: Final = "Terminal 3"
LIMIT_S: Final = 60.0
PAUSE_S: Final = 0.2

_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_BLOCK = re.compile(r'^```console title="(?P<terminal>[^"]+)"\n(?P<lines>.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:[^\n]*\\\n)*[^\n]*)\n", re.MULTILINE)
LEFT_OUT: Final = "..."


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the page."""

    terminal: str
    command: str
    #: What the page says that it prints.
    shown: tuple[str, ...]

    def missing(self, output: str) -> str | None:
        """The first line of the page that this output does not have in its place; None if it has all."""
        at = 0
        for line in self.shown:
            words = line.split()
            if not words or words == [LEFT_OUT]:
                continue
            end = r"(?:\s.*)?$" if words[-1] == LEFT_OUT else r"\s*$"
            same = (r"\S+" if re.search(r"\d", word) else re.escape(word) for word in words if word != LEFT_OUT)
            found = re.compile(r"^\s*" + r"\s+".join(same) + end, re.MULTILINE).search(output, at)
            if found is None:
                return line
            at = found.end()
        return None


def sections(text: str) -> dict[str, list[Step]]:
    """The commands of each section that has some, by its heading."""
    parts = _HEADING.split(text)
    found = {heading: list(_steps(body)) for heading, body in zip(parts[1::2], parts[2::2], strict=True)}
    return {heading: steps for heading, steps in found.items() if steps}


def _steps(body: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(body):
        _, *parts = _COMMAND.split(block["lines"])
        for command, shown in zip(parts[::2], parts[1::2], strict=True):
            yield Step(block["terminal"], command, tuple(shown.splitlines()))


def packages_missing(steps: Sequence[Step]) -> list[str]:
    """The packages to install before these commands can run."""
    words = {word for step in steps for word in step.command.split()}
    return sorted({package for name, package in PACKAGES.items() if name in words and shutil.which(name) is None})


class Terminals:
    """The terminals of one reader, on the loopback interface of a node."""

    def __init__(self, fabric: EmulatedFabric, scratch: Path) -> None:
        self._launcher, self._node = NamespaceLauncher(fabric), fabric.nodes[0]
        folder = Path(shutil.which(urxe().name) or urxe().name).parent
        self._prompt = f"export LC_ALL=C.UTF-8 PATH={shlex.quote(str(folder))}:$PATH; cd {shlex.quote(str(scratch))}; "
        self._running: dict[str, tuple[Step, Running]] = {}
        self.outputs: list[tuple[Step, str]] = []

    def enter(self, step: Step) -> None:
        """Start a command once that terminal's last one has ended; one that looks at the others ends here."""
        self._finish(step.terminal)
        if step.terminal == WATCHING:
            self.outputs.append((step, self._as_soon_as_shown(step)))
            return
        running = self._start(step)
        self._running[step.terminal] = (step, running)
        deadline_s = time.monotonic() + LIMIT_S
        while step.terminal == SERVING and running.poll() is None:
            if self._launcher.is_listening(self._node, SERVER_PORT) or time.monotonic() > deadline_s:
                break
            time.sleep(PAUSE_S)

    def close(self) -> None:
        """Wait for all that still runs."""
        for terminal in list(self._running):
            self._finish(terminal)

    def _start(self, step: Step) -> Running:
        return self._launcher.start(self._node, ["bash", "-c", self._prompt + step.command])

    def _as_soon_as_shown(self, step: Step) -> str:
        # A reader takes a moment as well until the programs to look at are under way.
        while True:
            printed = _printed(self._start(step).wait(LIMIT_S))
            others_run = any(running.poll() is None for _, running in self._running.values())
            if step.missing(printed) is None or not others_run:
                return printed
            time.sleep(PAUSE_S)

    def _finish(self, terminal: str) -> None:
        if terminal not in self._running:
            return
        step, running = self._running.pop(terminal)
        done = running.wait(LIMIT_S)
        printed = _printed(done)
        if done.exit_status != 0:
            printed += f"(exit status {done.exit_status})\n"
        self.outputs.append((step, printed))


def _printed(done: Finished) -> str:
    return done.stdout + done.stderr
