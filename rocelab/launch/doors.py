"""What stands in for ssh between the nodes of an emulated fabric: a doorkeeper that starts what `enter.py` asks for.

with open_doors(fabric, env) as shell:
    launcher.start(fabric.nodes[0], ["mpiexec", "-launcher-exec", shell.program, ...], env={**env, **shell.env})
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shlex
import socket
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

from rocelab.fabric.base import Entrance, FabricError, LaunchError, RemoteShell
from rocelab.fabric.keeper import channel
from rocelab.launch.starting import start_on, start_request

_ENTER: Final = Path(__file__).with_name("enter.py")
_REQUEST_BYTES_MAX: Final = 1 << 20
#: How many may knock at the same moment: an mpirun starts the daemons of all of its nodes at once.
_BACKLOG: Final = 64


@contextlib.contextmanager
def open_doors(fabric: Entrance, env: Mapping[str, str], cores: Mapping[str, Collection[int]]) -> Iterator[RemoteShell]:
    """A program that starts commands on other nodes, with `env` added to their environment, until the block ends.

    They are pinned to the `cores` of their node, if its name is there.
    """
    with tempfile.TemporaryDirectory(prefix="rocelab-doors-") as folder:
        path = Path(folder) / "door"
        # Launchers want one word.
        script = Path(folder) / "enter"
        script.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-S", str(_ENTER)])} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        shell = RemoteShell(str(script), {"ROCELAB_ENTER": str(path), **_own_temporary_files(Path(folder), "start")})
        doorkeeper = _Doorkeeper(fabric, path, {**env, **shell.env}, cores)
        try:
            yield shell
        finally:
            doorkeeper.close()


def _own_temporary_files(folder: Path, node: str) -> dict[str, str]:
    """Nodes share /tmp, and daemons name their folders there after their pids, which each node counts from 1."""
    own = folder / node
    own.mkdir(exist_ok=True)
    return {"TMPDIR": str(own)}


class _Doorkeeper:
    """Answers at a Unix socket, each request in a thread that lives as long as what was asked for."""

    def __init__(
        self, fabric: Entrance, path: Path, env: Mapping[str, str], cores: Mapping[str, Collection[int]]
    ) -> None:
        self._fabric = fabric
        self._path = path
        self._env = env
        self._cores = cores
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(_BACKLOG)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        # Closing alone does not wake a thread that is accepting.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                door, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(door,), daemon=True).start()

    def _answer(self, door: socket.socket) -> None:
        # The asker may be gone before its answer, and the fabric before its programs: then no
        # process waits for it.
        with door, contextlib.suppress(OSError):
            data, files, _, _ = socket.recv_fds(door, _REQUEST_BYTES_MAX, 3)
            try:
                request = json.loads(data)
                command = ["sh", "-c", f"cd {shlex.quote(request['cwd'])} && {request['command']}"]
                node = self._fabric.node(request["node"])
                own = _own_temporary_files(self._path.parent, node.name)
                message = start_request(node, command, env={**self._env, **own}, cores=self._cores.get(node.name, ()))
                started = start_on(self._fabric, node, message, (files[0], files[1], files[2]))
            except (LaunchError, FabricError) as error:
                os.write(files[2], f"{error}\n".encode())
                return
            finally:
                for each in files:
                    os.close(each)
            with started.let_go_of_handle() as keeper:
                status = _exit_status(keeper, door)
            if status is not None:
                door.sendall(str(status if status >= 0 else 128 - status).encode())


def _exit_status(keeper: socket.socket, door: socket.socket) -> int | None:
    """How the program ended; None if the asker ended first: then it goes, too, with its keeper."""
    poller = select.poll()
    poller.register(keeper.fileno(), select.POLLIN)
    poller.register(door.fileno(), 0)  # tells when it is hung up
    ready = [number for number, _ in poller.poll()]
    if keeper.fileno() not in ready:
        return None
    report = channel.receive(keeper)
    return None if report is None else int(report["exit_status"])
