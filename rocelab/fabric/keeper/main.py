"""The guard: first process of a fabric. Makes the namespaces the switch lives in, then waits for the switch.

It stays outside the fabric's PID namespace so that the fabric has a process a person can find and
end. When it is killed, the switch is killed with it, and the kernel ends everything in the switch's
PID namespace.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any, NoReturn

from rocelab.fabric.keeper import channel, kernel, switch

_USER_NAMESPACE_HINT = (
    "An ordinary user needs user namespaces for an emulated fabric. Allow them "
    "(sysctl kernel.unprivileged_userns_clone=1 on older Debian, kernel.apparmor_restrict_unprivileged_userns=0 "
    "on Ubuntu, user.max_user_namespaces above 0), or run rocelab with sudo."
)
_NAMESPACE_HINT = (
    "Network, PID, mount, UTS and IPC namespaces are needed. In a container, start it with --privileged; else "
    "raise the limits under /proc/sys/user/max_*_namespaces."
)


def main() -> NoReturn:
    """Read the specification from standard input, make the fabric, report on the control socket, keep it."""
    specification = json.load(sys.stdin)
    control = socket.socket(fileno=int(specification["control_fd"]))
    # Programs on nodes must get neither of these.
    control.set_inheritable(False)
    if specification["listen_fd"] is not None:
        os.set_inheritable(int(specification["listen_fd"]), False)
    os.chdir("/")
    kernel.set_process_name("rocelab-guard")
    try:
        _enter_namespaces()
    except kernel.KernelError as refusal:
        channel.send(control, {"error": str(refusal), "hint": refusal.hint})
        os._exit(1)
    switch_pid = os.fork()
    if switch_pid == 0:
        _become_switch(specification, control)
    control.close()
    _wait_for(switch_pid)


def _become_switch(specification: dict[str, Any], control: socket.socket) -> NoReturn:
    status = 1
    try:
        kernel.die_with_parent()
        status = switch.run(specification, control)
    except kernel.KernelError as refusal:
        channel.send(control, {"error": str(refusal), "hint": refusal.hint})
    finally:
        os._exit(status)


def _enter_namespaces() -> None:
    if not kernel.may_make_namespaces():
        uid, gid = os.getuid(), os.getgid()
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"0 {uid} 1")
            _write("/proc/self/gid_map", f"0 {gid} 1")
        except OSError as error:
            raise _refusal("making a user namespace", error, _USER_NAMESPACE_HINT) from error
    wanted = kernel.CLONE_NEWPID | kernel.CLONE_NEWNET | kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    try:
        kernel.unshare(wanted)
    except OSError as error:
        raise _refusal("making namespaces", error, _NAMESPACE_HINT) from error


def _refusal(what: str, error: OSError, hint: str) -> kernel.KernelError:
    if error.errno == errno.ENOSPC:
        hint = "The limit on namespaces is reached: see /proc/sys/user/max_*_namespaces."
    return kernel.KernelError(what, error.errno or 0, hint)


def _wait_for(switch_pid: int) -> NoReturn:
    # PID 1 of a namespace ignores signals it has no handler for; only SIGKILL from here is certain.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: os.kill(switch_pid, signal.SIGKILL))
    _, status = os.waitpid(switch_pid, 0)
    os._exit(0 if os.waitstatus_to_exitcode(status) == 0 else 1)


def _write(path: str, text: str) -> None:
    Path(path).write_text(text, encoding="ascii")
