"""The emulated fabric: nodes are network namespaces on this machine, joined by veth cables and bridges.

    with up([LinkProfile("direct", "direct")]) as fabric:
        launcher = NamespaceLauncher(fabric)

Nothing is made in the machine's own namespaces and nothing has a name there. The fabric lives in processes
(see `rocelab.fabric.keeper`) that end when this process does, even by SIGKILL; the kernel removes the rest.
Works as root, and as an ordinary user where user namespaces are allowed.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rocelab.fabric import plan
from rocelab.fabric.base import FabricError, LinkProfile, Node
from rocelab.fabric.keeper import channel
from rocelab.fabric.process import Identity, identity

#: Marks the keepers in the list of processes; `rocelab.fabric.leftovers` looks for it.
MARKER: Final = "rocelab-fabric"
START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0
_PROGRAM = "import sys; sys.path.append(sys.argv[4]); from rocelab.fabric.keeper.main import main; main()"


class EmulatedFabric:
    """An emulated fabric that this process made and that ends with it, or one it is attached to."""

    def __init__(
        self,
        name: str,
        links: tuple[LinkProfile, ...],
        nodes: tuple[Node, ...],
        control: socket.socket,
        guard: subprocess.Popen[bytes] | None,
    ) -> None:
        self.name = name
        self.links = links
        self.nodes = nodes
        self._control = control
        self._guard = guard

    def node(self, name: str) -> Node:
        """The node of that name; FabricError if there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise FabricError(f"fabric {self.name} has no node {name!r}; it has {', '.join(n.name for n in self.nodes)}")

    def request(self, node: Node, message: Mapping[str, object], files: Sequence[int]) -> None:
        """See `rocelab.fabric.base.Entrance`."""
        try:
            channel.send(self._control, {**message, "node": node.name}, files)
        except OSError as error:
            raise FabricError(f"fabric {self.name} is gone ({error.strerror})") from error

    def dropped_packets(self, link: str) -> int | None:
        """See `rocelab.fabric.base.Fabric.dropped_packets`."""
        if not any(each.id == link and each.loss_percent is not None for each in self.links):
            return None
        ours, theirs = channel.pair()
        with ours:
            ours.settimeout(START_LIMIT_S)
            try:
                with theirs:
                    channel.send(self._control, {"op": "dropped"}, [theirs.fileno()])
                answer = channel.receive(ours) or {"error": "it does not answer"}
            except OSError as error:
                raise FabricError(f"fabric {self.name} is gone ({error.strerror})") from error
        if "error" in answer:
            raise FabricError(f"fabric {self.name}: {answer['error']}")
        return int(answer["dropped"].get(link, 0))

    def close(self) -> None:
        """Close the lifeline and, if this process made the fabric, wait until nothing of it is left."""
        _end(self._control, self._guard)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def default_names(count: int) -> tuple[str, ...]:
    """node0, node1, ..."""
    return tuple(f"node{index}" for index in range(count))


def up(
    links: Sequence[LinkProfile], names: Sequence[str] = ("node0", "node1"), *, name: str | None = None
) -> EmulatedFabric:
    """Make a fabric that lives until it is closed or this process ends. Takes about half a second.

    Raises FabricError with what the machine lacks.
    """
    name = name or f"run-{secrets.token_hex(4)}"
    planned, specification = _prepare(links, names)
    ours, guard, ipv6 = _start(name, specification, f"owner={identity(os.getpid())}")
    return _with_pids(EmulatedFabric(name, tuple(links), _without_ipv6(planned, ipv6), ours, guard))


def up_persistent(
    links: Sequence[LinkProfile], names: Sequence[str], *, name: str, socket_path: Path
) -> tuple[EmulatedFabric, Identity]:
    """Make a fabric that outlives this process and is reached through the socket at `socket_path`.

    Returns it and the process that keeps it. `rocelab.fabric.records` is what remembers such fabrics.
    """
    planned, specification = _prepare(links, names)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        try:
            listener.bind(str(socket_path))
        except OSError as error:
            raise FabricError(f"cannot make the socket {socket_path}: {error.strerror}") from error
        listener.listen()
        ours, guard, ipv6 = _start(name, specification, f"socket={socket_path}", listener)
    ours.close()
    # The guard is to outlive this process, which does not wait for it.
    guard.returncode = 0
    fabric = attach(name, links, _without_ipv6(planned, ipv6), socket_path)
    return _with_pids(fabric), identity(guard.pid)


def attach(name: str, links: Sequence[LinkProfile], nodes: Sequence[Node], socket_path: Path) -> EmulatedFabric:
    """Reach a persistent fabric. Closing the result leaves the fabric as it is."""
    control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        control.connect(str(socket_path))
    except OSError as error:
        control.close()
        raise FabricError(f"fabric {name} does not answer ({error.strerror})") from error
    return EmulatedFabric(name, tuple(links), tuple(nodes), control, None)


def answers(socket_path: Path) -> bool:
    """Whether a persistent fabric can be reached there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        return control.connect_ex(str(socket_path)) == 0


def _prepare(links: Sequence[LinkProfile], names: Sequence[str]) -> tuple[tuple[Node, ...], dict[str, Any]]:
    plan.check(links, names)
    planned = plan.nodes(links, names)
    return planned, plan.specification(links, planned)


def _start(
    name: str, specification: dict[str, Any], tie: str, listener: socket.socket | None = None
) -> tuple[socket.socket, subprocess.Popen[bytes], bool]:
    """Start the guard and wait until the fabric is ready. Returns the lifeline, the guard, and if it has IPv6."""
    ours, theirs = channel.pair()
    inherited = [theirs.fileno(), *([listener.fileno()] if listener else [])]
    specification = {
        **specification,
        "control_fd": theirs.fileno(),
        "listen_fd": listener.fileno() if listener else None,
        "python_path": [str(Path(path).resolve()) for path in sys.path if path],
    }
    root = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, MARKER, name, tie, root]
    with tempfile.TemporaryFile() as errors:
        with theirs:
            # A session of its own: Ctrl-C in the terminal is for the owner, which then ends the
            # fabric in order.
            guard = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=inherited,
                start_new_session=True,
            )
        try:
            assert guard.stdin is not None
            with guard.stdin as pipe:
                pipe.write(json.dumps(specification).encode())
            ours.settimeout(START_LIMIT_S)
            answer = channel.receive(ours)
            ours.settimeout(None)
        except BaseException as error:
            _end(ours, guard)
            if isinstance(error, OSError):
                raise FabricError(f"the fabric did not start within {START_LIMIT_S:g} s ({error})") from error
            raise
        if answer is None or "error" in answer:
            _end(ours, guard)
            errors.seek(0)
            raise FabricError(_explain(answer, errors.read().decode(errors="replace")))
    return ours, guard, bool(answer["ipv6"])


def _end(lifeline: socket.socket, guard: subprocess.Popen[bytes] | None) -> None:
    """Close the lifeline; the guard ends after everything else has."""
    lifeline.close()
    if guard is None:
        return
    try:
        guard.wait(STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        # Killing the guard kills the switch, and with it every process of the fabric.
        guard.kill()
        guard.wait()


def _explain(answer: dict[str, Any] | None, errors: str) -> str:
    if answer is None:
        return f"the fabric ended while it was being made:\n{errors.strip() or '(no output)'}"
    hint = f"\n{answer['hint']}" if answer.get("hint") else ""
    return f"cannot make an emulated fabric: {answer['error']}{hint}"


def _with_pids(fabric: EmulatedFabric) -> EmulatedFabric:
    try:
        fabric.nodes = tuple(replace(node, pid=_pid_of(fabric, node)) for node in fabric.nodes)
    except BaseException:
        fabric.close()
        raise
    return fabric


def _without_ipv6(planned: Sequence[Node], ipv6: bool) -> tuple[Node, ...]:
    return tuple(planned) if ipv6 else tuple(replace(node, addresses6={}) for node in planned)


def _pid_of(fabric: EmulatedFabric, node: Node) -> int:
    """The node's PID 1 as this process sees it: the kernel translates the pid that comes with a message."""
    ours, theirs = channel.pair()
    with ours:
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        ours.settimeout(START_LIMIT_S)
        with theirs:
            fabric.request(node, {"op": "hello"}, [theirs.fileno()])
        answer, pid = channel.receive_with_sender(ours)
    if answer is None or "hello" not in answer or pid is None:
        raise FabricError(f"node {node.name} of fabric {fabric.name} does not answer")
    return pid
