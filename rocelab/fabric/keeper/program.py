"""The keeper of one program: starts it, waits, ends everything it started, and reports CPU seconds.

CPU seconds are the sum over every process this keeper collects. It is the subreaper of the program's
descendants, so those that were orphaned or made their own session are counted and ended too. Not counted are
children of a process that ignores SIGCHLD, because the kernel then forgets their time.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import struct
import termios
import time
from pathlib import Path
from typing import Any, NoReturn

from rocelab.fabric.keeper import channel, kernel
from rocelab.fabric.keeper.children import ChildWatch

#: How long a program may tidy up after SIGTERM before SIGKILL.
GRACE_S = 1.0
#: How long to go on killing before reporting that something cannot be killed (stuck inside the
#: kernel).
KILL_LIMIT_S = 10.0


class _Tally:
    """What has been collected of the program's processes so far."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.status: int | None = None
        self.ended_at_s = 0.0
        self.user_s = 0.0
        self.system_s = 0.0
        self.empty = False

    def collect(self) -> None:
        """Reap all that has ended, adding up CPU time; `empty` is set when no descendant is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                self.empty = True
                return
            if pid == 0:
                return
            self.user_s += usage.ru_utime
            self.system_s += usage.ru_stime
            if pid == self.pid:
                self.ended_at_s = time.monotonic()
                self.status = os.waitstatus_to_exitcode(status)


def keep(request: dict[str, Any], files: list[int]) -> NoReturn:
    """Run the program of `request` with `files` = channel, stdin, stdout, stderr. Ends this process."""
    try:
        os.setpgid(0, 0)
        kernel.set_process_name("rocelab-keeper")
        kernel.become_subreaper()
        asker = socket.socket(fileno=files[0])
        _run(request, asker, files[1:])
    finally:
        # Leaving here by an exception must not return into the node's loop.
        os._exit(0)


def _run(request: dict[str, Any], asker: socket.socket, stdio: list[int]) -> None:
    watch = ChildWatch()
    started_at_s = time.monotonic()
    pid, failure = _spawn(request, stdio)
    channel.close_all(stdio)
    if failure is not None:
        os.waitpid(pid, 0)
        channel.send(asker, {"refused": failure[0], "errno": failure[1]})
        return
    _tell_started(asker, pid)
    tally = _Tally(pid)
    asked_to_stop = _wait(tally, asker, watch)
    if asked_to_stop:
        _signal_all(signal.SIGTERM)
        _wait_until_empty(tally, watch, GRACE_S)
    survivors = _kill_all(tally, watch)
    report = {
        "exit_status": tally.status if tally.status is not None else -int(signal.SIGKILL),
        "wall_s": (tally.ended_at_s or time.monotonic()) - started_at_s,
        "cpu_user_s": tally.user_s,
        "cpu_system_s": tally.system_s,
        "survivors": survivors,
    }
    channel.send(asker, report)


def _tell_started(asker: socket.socket, pid: int) -> None:
    """The pid, and a handle of the program (a pidfd) where the kernel has one, by which it can be signalled at once."""
    try:
        handle = [os.pidfd_open(pid)]
    except OSError:
        handle = []
    channel.send(asker, {"started": pid}, handle)
    channel.close_all(handle)


def _spawn(request: dict[str, Any], stdio: list[int]) -> tuple[int, tuple[str, int] | None]:
    """Fork and exec. Returns the pid and, if the program could not be executed, which step failed and why."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        step = "start"
        try:
            os.close(told)
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            step = "stdio"
            # Move them out of the way first: one of them may itself be 0, 1 or 2.
            high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in stdio]
            for target, fd in enumerate(high):
                os.dup2(fd, target, inheritable=True)
            if request.get("terminal"):
                fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            step = "cores"
            if request.get("cores"):
                os.sched_setaffinity(0, request["cores"])
            step = "directory"
            os.chdir(request["directory"])
            step = "execute"
            argv = [str(word) for word in request["argv"]]
            os.execvpe(argv[0], argv, request["env"])  # noqa: S606 -- the very purpose
        except OSError as error:
            os.write(tell, struct.pack("i", error.errno or 0) + step.encode())
        except BaseException as error:  # noqa: BLE001 -- the asker is told; nothing may escape a fork
            os.write(tell, struct.pack("i", 0) + f"{step}: {error}".encode())
        finally:
            os._exit(127)
    os.close(tell)
    answer = os.read(told, 4096)
    os.close(told)
    if answer:
        return pid, (answer[4:].decode(errors="replace"), struct.unpack("i", answer[:4])[0])
    return pid, None


def _wait(tally: _Tally, asker: socket.socket, watch: ChildWatch) -> bool:
    """Until the program itself ends (False), or its end is asked for or the asker is gone (True)."""
    poller = select.poll()
    poller.register(asker, select.POLLIN)
    poller.register(watch, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == watch.fileno():
                watch.clear()
                continue
            message = channel.receive(asker)
            if message is None or message.get("op") == "stop":
                tally.collect()
                return tally.status is None
            if message.get("op") == "signal":
                _signal_group(tally.pid, int(message["number"]))
        tally.collect()
        if tally.status is not None:
            return False


def _wait_until_empty(tally: _Tally, watch: ChildWatch, limit_s: float) -> None:
    """Collect until no descendant is left or the limit has passed."""
    deadline_s = time.monotonic() + limit_s
    poller = select.poll()
    poller.register(watch, select.POLLIN)
    tally.collect()
    while not tally.empty and (left_s := deadline_s - time.monotonic()) > 0:
        if poller.poll(left_s * 1000):
            watch.clear()
        tally.collect()


def _kill_all(tally: _Tally, watch: ChildWatch) -> int:
    """SIGKILL until nothing is left, again and again because a dying family may still fork. Returns survivors."""
    deadline_s = time.monotonic() + KILL_LIMIT_S
    tally.collect()
    while not tally.empty and time.monotonic() < deadline_s:
        _signal_all(signal.SIGKILL)
        _wait_until_empty(tally, watch, 0.05)
    return 0 if tally.empty else len(_descendants())


def _signal_all(number: int) -> None:
    for pid in _descendants():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def _descendants() -> list[int]:
    """All descendants of this process, nearest first. The node's /proc shows only the node's processes."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found = list(children.get(os.getpid(), ()))
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def _parent(process: Path) -> int | None:
    try:
        # The name, in parentheses, may itself hold spaces and parentheses; the fields follow the
        # last one.
        return int((process / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None
