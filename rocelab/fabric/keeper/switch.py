"""The switch: PID 1 of a fabric. Starts the nodes, has the links built, then passes requests on to the nodes.

It ends when its lifeline closes (the owner ended, in whatever way) or when it is told to; the kernel then kills
every process below it and removes the namespaces with their links.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocelab.fabric.keeper import channel, kernel, loss, node
from rocelab.fabric.keeper.children import ChildWatch, reap

#: A node that was stopped must not keep the switch from seeing that its owner is gone.
_PASS_ON_LIMIT_S = 5.0
_TCP_TABLE_ENTRIES = 4096
_HINT_REPORT = "This is not expected; please report it with the output of `rocelab doctor`."


@dataclass
class _NodeHandle:
    name: str
    requests: socket.socket
    network_fd: int


@dataclass
class _Switch:
    nodes: dict[str, _NodeHandle] = field(default_factory=dict)
    clients: dict[int, socket.socket] = field(default_factory=dict)


def run(specification: dict[str, Any], control: socket.socket) -> int:
    """Build everything, report `{"ready": true}` on `control`, serve until the end. Returns the exit status."""
    kernel.set_process_name("rocelab-switch")
    socket.sethostname("switch")
    _keep_tables_small()
    state = _Switch()
    for wanted in specification["nodes"]:
        state.nodes[wanted["name"]] = _start_node(wanted, specification)
    built = _build_links(specification, {name: handle.network_fd for name, handle in state.nodes.items()})
    for handle in state.nodes.values():
        os.close(handle.network_fd)
    channel.send(control, built)
    if "error" in built:
        return 1
    _serve(state, control, specification.get("listen_fd"))
    return 0


def _keep_tables_small() -> None:
    """Give the nodes TCP tables of their own, so that listing a node's connections costs microseconds.

    The machine's table has a bucket for every 100 KB or so of its memory, and reading /proc/net/tcp walks all of them.
    Kernels before 6.1 cannot, and an ordinary user may not; then it takes milliseconds more to see a server listen.
    """
    with contextlib.suppress(OSError):
        Path("/proc/sys/net/ipv4/tcp_child_ehash_entries").write_text(str(_TCP_TABLE_ENTRIES), encoding="ascii")


def _start_node(wanted: dict[str, Any], specification: dict[str, Any]) -> _NodeHandle:
    """Fork a process that makes the node's namespaces and leaves PID 1 of the node behind."""
    ours, theirs = channel.pair()
    middle = os.fork()
    if middle == 0:
        try:
            ours.close()
            node.make(wanted, str(specification["hosts"]), theirs)
        finally:
            os._exit(1)
    theirs.close()
    os.waitpid(middle, 0)
    data, files, _ = channel.receive_raw(ours)
    answer = channel.decode(data) if data else {"error": f"node {wanted['name']} ended while it was being made"}
    if "error" in answer or len(files) != 1:
        channel.close_all(files)
        raise kernel.KernelError(
            str(answer.get("error")), int(answer.get("errno", 0)), str(answer.get("hint", _HINT_REPORT))
        )
    ours.settimeout(_PASS_ON_LIMIT_S)
    return _NodeHandle(wanted["name"], ours, files[0])


def _build_links(specification: dict[str, Any], network_fds: dict[str, int]) -> dict[str, Any]:
    """Run the plumbing in a child, because it enters the nodes' namespaces and loads a large library."""
    reader, writer = channel.pair()
    child = os.fork()
    if child == 0:
        try:
            reader.close()
            channel.send(writer, _plumb(specification, network_fds))
        finally:
            os._exit(0)
    writer.close()
    answer = channel.receive(reader)
    reader.close()
    os.waitpid(child, 0)
    return answer or {"error": "the process that builds the links ended unexpectedly", "hint": _HINT_REPORT}


def _plumb(specification: dict[str, Any], network_fds: dict[str, int]) -> dict[str, Any]:
    # The keepers start without site-packages (quicker, and nothing of the user's runs as root in
    # there).
    sys.path.extend(path for path in specification["python_path"] if path not in sys.path)
    try:
        from rocelab.fabric.keeper import plumbing  # noqa: PLC0415 -- only found, and only wanted, here

        return {"ready": True, "ipv6": plumbing.build(specification, network_fds)}
    except kernel.KernelError as refusal:
        return {"error": str(refusal), "hint": refusal.hint}
    except ImportError as error:
        return {"error": f"Python cannot load {error.name}", "hint": "Install it: pip install pyroute2."}
    except Exception:  # noqa: BLE001 -- reported to the owner, with its trace
        return {"error": f"building the links failed:\n{traceback.format_exc()}", "hint": _HINT_REPORT}


def _serve(state: _Switch, control: socket.socket, listen_fd: int | None) -> None:
    """Pass requests to nodes until the lifeline closes; a persistent fabric has no lifeline but a listener."""
    poller = select.poll()
    watch = ChildWatch()
    listener = socket.socket(fileno=listen_fd) if listen_fd is not None else None
    if listener is None:
        state.clients[control.fileno()] = control
        poller.register(control, select.POLLIN)
    else:
        control.close()
        poller.register(listener, select.POLLIN)
    poller.register(watch, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == watch.fileno():
                watch.clear()
                reap()
            elif listener is not None and fd == listener.fileno():
                client, _ = listener.accept()
                state.clients[client.fileno()] = client
                poller.register(client, select.POLLIN)
            elif not _serve_one(state, state.clients[fd]):
                if listener is None:
                    return
                poller.unregister(fd)
                state.clients.pop(fd).close()


def _serve_one(state: _Switch, client: socket.socket) -> bool:
    """Handle one request; False when the client is gone."""
    data, files, _ = channel.receive_raw(client)
    try:
        if not data:
            return False
        message = channel.decode(data)
        if message.get("op") == "down":
            # Nothing to tidy: with PID 1 the kernel ends the rest.
            os._exit(0)
        if message.get("op") == "dropped":
            _answer(files, _dropped())
            return True
        _pass_on(state, message, data, files)
    except ValueError as error:
        _answer(files, {"error": f"not a request: {error}"})
    finally:
        channel.close_all(files)
    return True


def _pass_on(state: _Switch, message: dict[str, Any], data: bytes, files: list[int]) -> None:
    handle = state.nodes.get(str(message.get("node")))
    if handle is None:
        _answer(files, {"error": f"no node is called {message.get('node')!r}"})
        return
    try:
        channel.forward(handle.requests, data, files)
    except OSError as error:
        _answer(files, {"error": f"node {handle.name} does not answer ({error.strerror or error})"})


def _dropped() -> dict[str, Any]:
    try:
        return {"dropped": loss.dropped()}
    except OSError as error:
        return {"error": f"the dropped packets cannot be counted ({error.strerror})"}


def _answer(files: list[int], message: dict[str, Any]) -> None:
    """Tell the asker; the first file of a request is the channel for its answer."""
    if not files:
        return
    # If the asker is gone too, no process is left to tell.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(files[0])) as asker:
        channel.send(asker, message)
