"""Asks the keeper of a node to start a program, and words why it could not."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rocelab.fabric.base import Entrance, FabricError, LaunchError, Node
from rocelab.fabric.keeper import channel

START_LIMIT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Started:
    """A program that is executing. Its end of the channel and its handle are the holder's to close."""

    keeper: socket.socket
    """The channel to the program's keeper."""
    pid: int
    """The program's pid on the node."""
    handle: int | None
    """A pidfd of it; None if the kernel has none (before Linux 5.3)."""

    def let_go_of_handle(self) -> socket.socket:
        """Close the handle; the channel is all that is wanted."""
        if self.handle is not None:
            os.close(self.handle)
        return self.keeper


def start_request(
    node: Node,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cores: Collection[int] = (),
    terminal: bool = False,
) -> dict[str, Any]:
    """What a keeper needs to know to start `argv` as if from here, but on `node`."""
    if not argv:
        raise LaunchError(f"{node.name}: no command was given")
    return {
        "op": "start",
        "argv": list(argv),
        "env": {**os.environ, "HOSTNAME": node.name, **(env or {})},
        "cores": sorted(cores),
        "directory": str(Path.cwd()),
        "terminal": terminal,
    }


def start_on(fabric: Entrance, node: Node, request: Mapping[str, Any], stdio: tuple[int, int, int]) -> Started:
    """Send a start request, and return once the program is executing."""
    ours, theirs = channel.pair()
    try:
        with theirs:
            fabric.request(node, request, (theirs.fileno(), *stdio))
        ours.settimeout(START_LIMIT_S)
        data, files, _ = channel.receive_raw(ours)
        answer = channel.decode(data) if data else None
        ours.settimeout(None)
    except (FabricError, OSError, channel.MessageTooLongError) as error:
        ours.close()
        raise LaunchError(f"{node.name}: cannot start {request['argv'][0]}: {error}") from error
    if answer is None or "started" not in answer:
        ours.close()
        usable = os.sched_getaffinity(0)
        raise LaunchError(refusal(node.name, request, answer or {"error": "the node went away"}, usable))
    return Started(ours, int(answer["started"]), files[0] if files else None)


def refusal(node: str, request: Mapping[str, Any], answer: Mapping[str, Any], usable: Collection[int]) -> str:
    """Why a program was not started: in words for a person. `usable` are the cores that programs there may have."""
    program = request["argv"][0]
    if "error" in answer:
        return f"{node}: cannot start {program}: {answer['error']}"
    step, number = answer["refused"], int(answer["errno"])
    if step == "execute" and number == errno.ENOENT:
        return f"{node}: there is no program {program!r}; `rocelab doctor` says which package has it"
    if step == "execute" and number == errno.EACCES:
        return f"{node}: {program} is not executable for this user"
    if step == "cores" and number == errno.EINVAL:
        wanted, there = (", ".join(map(str, cores)) for cores in (request["cores"], sorted(usable)))
        return f"{node}: core {wanted} cannot be used; there are cores {there}"
    if step == "directory":
        return f"{node}: the working directory {request['directory']} cannot be entered: {os.strerror(number)}"
    reason = os.strerror(number) if number else "not possible"
    return f"{node}: cannot start {program}: {step}: {reason}"
