"""A program on a node with the caller's own terminal or files: what `rocelab fabric exec` is.

In a terminal the program gets a pseudo-terminal of its own, so that shells, editors and Ctrl-C work as over ssh.
Otherwise it gets the caller's standard files, and the signals the caller gets are passed on.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import termios
import tty
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, Final

from rocelab.fabric.base import Entrance, LaunchError, Node
from rocelab.fabric.keeper import channel
from rocelab.launch.starting import start_on, start_request

_CHUNK_BYTES: Final = 65536
_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def run(
    fabric: Entrance,
    node: Node,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cores: Collection[int] = (),
) -> int:
    """Run `argv` on `node` with this process's standard files until it ends.

    Returns the exit status as a shell has it: 128 + N for a program that signal N ended. Raises LaunchError.
    """
    in_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    request = start_request(node, argv, env=env, cores=cores, terminal=in_terminal)
    report = _in_terminal(fabric, node, request) if in_terminal else _with_files(fabric, node, request)
    if report is None:
        raise LaunchError(f"{node.name}: the node went away while {argv[0]} was running")
    status = int(report["exit_status"])
    return status if status >= 0 else 128 - status


def _with_files(fabric: Entrance, node: Node, request: Mapping[str, Any]) -> dict[str, Any] | None:
    sys.stdout.flush()
    keeper = start_on(fabric, node, request, (0, 1, 2)).let_go_of_handle()
    with keeper, _signals_passed_to(keeper):
        return channel.receive(keeper)


@contextlib.contextmanager
def _signals_passed_to(keeper: socket.socket) -> Iterator[None]:
    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(OSError):
            channel.send(keeper, {"op": "signal", "number": number})

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _in_terminal(fabric: Entrance, node: Node, request: Mapping[str, Any]) -> dict[str, Any] | None:
    ours, theirs = os.openpty()
    try:
        _copy_size(ours)
        try:
            keeper = start_on(fabric, node, request, (theirs, theirs, theirs)).let_go_of_handle()
        finally:
            os.close(theirs)
        before = signal.signal(signal.SIGWINCH, lambda *_: _copy_size(ours))
        try:
            with keeper, _raw_terminal():
                return _relay(keeper, ours)
        finally:
            signal.signal(signal.SIGWINCH, before)
    finally:
        os.close(ours)


def _copy_size(terminal: int) -> None:
    """Give the pseudo-terminal the size of the real one; its programs are told by the kernel."""
    size = fcntl.ioctl(sys.stdin.fileno(), termios.TIOCGWINSZ, bytes(8))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Every key goes to the program, Ctrl-C too."""
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    tty.setraw(number, termios.TCSADRAIN)  # not the default, which would drop what was typed ahead
    try:
        yield
    finally:
        termios.tcsetattr(number, termios.TCSADRAIN, before)


def _relay(keeper: socket.socket, terminal: int) -> dict[str, Any] | None:
    """Copy both ways until the program has ended and all it wrote is shown."""
    poller = select.poll()
    for number in (sys.stdin.fileno(), terminal, keeper.fileno()):
        poller.register(number, select.POLLIN)
    while True:
        ready = {number for number, _ in poller.poll()}
        if terminal in ready and not _copy(terminal, sys.stdout.fileno()):
            poller.unregister(terminal)
        if sys.stdin.fileno() in ready and not _copy(sys.stdin.fileno(), terminal):
            poller.unregister(sys.stdin.fileno())
        if keeper.fileno() in ready:
            report = channel.receive(keeper)
            _drain(terminal)
            return report


def _copy(source: int, target: int) -> bool:
    """Copy what is there; False at the end. A terminal without its programs ends with EIO."""
    try:
        data = os.read(source, _CHUNK_BYTES)
    except OSError:
        return False
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]
    return bool(data)


def _drain(terminal: int) -> None:
    poller = select.poll()
    poller.register(terminal, select.POLLIN)
    while poller.poll(0) and _copy(terminal, sys.stdout.fileno()):
        pass
