"""A node: PID 1 of its own namespaces, with its own name, /etc/hosts, /proc and /sys. Forks program keepers."""

from __future__ import annotations

import os
import select
import signal
import socket
from typing import Any, NoReturn

from rocelab.fabric.keeper import channel, kernel, program

_MOUNT_HINT = (
    "A node needs its own /proc. In a container without --privileged the kernel refuses that; start the "
    "container with --privileged (or --security-opt systempaths=unconfined)."
)
_PSEUDO = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def make(wanted: dict[str, Any], hosts: str, requests: socket.socket) -> None:
    """Called in a child of the switch: make the namespaces, fork PID 1 of the node, return.

    PID 1 answers on `requests` with its network namespace attached, or with `{"error": ...}`.
    """
    flags = kernel.CLONE_NEWNET | kernel.CLONE_NEWUTS | kernel.CLONE_NEWNS | kernel.CLONE_NEWIPC | kernel.CLONE_NEWPID
    try:
        kernel.unshare(flags)
    except OSError as error:
        _report(requests, f"making the namespaces of node {wanted['name']}", error, "")
        return
    if os.fork() == 0:
        try:
            _live(wanted, hosts, requests)
        finally:
            os._exit(1)


def _live(wanted: dict[str, Any], hosts: str, requests: socket.socket) -> NoReturn:
    name = str(wanted["name"])
    kernel.set_process_name(f"rocelab:{name}")
    try:
        socket.sethostname(name)
        _furnish(name, hosts)
    except OSError as error:
        _report(requests, f"furnishing node {name} ({error.filename or 'host name'})", error, _MOUNT_HINT)
        os._exit(1)
    network = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    channel.send(requests, {"made": name}, [network])
    os.close(network)
    _serve(requests)


def _report(requests: socket.socket, what: str, error: OSError, hint: str) -> None:
    channel.send(requests, {"error": what, "errno": error.errno or 0, "hint": hint})


def _furnish(name: str, hosts: str) -> None:
    """Give the node its own view of the few files and pseudo file systems that say who and where it is."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    cgroups = _open_directory("/sys/fs/cgroup")
    # A scratch file system on a directory that is certain to exist and is about to be covered anyway, so that
    # nothing is left in, or named in, the file system of the machine.
    kernel.mount("tmpfs", "/proc", "tmpfs", _PSEUDO, "mode=755")
    for path, text in _files(name, hosts).items():
        scratch = "/proc/" + os.path.basename(path)
        with open(scratch, "w", encoding="utf-8") as file:
            file.write(text)
        if os.path.exists(path):
            kernel.mount(scratch, path, "", kernel.MS_BIND)
    kernel.unmount("/proc")
    kernel.mount("proc", "/proc", "proc", _PSEUDO)
    if os.path.isdir("/dev/shm"):
        kernel.mount("tmpfs", "/dev/shm", "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    if os.path.isdir("/run/nscd"):
        # The C library asks this daemon for host names before it reads /etc/hosts.
        kernel.mount("tmpfs", "/run/nscd", "tmpfs", _PSEUDO, "mode=755")
    _mount_sys(cgroups)


def _files(name: str, hosts: str) -> dict[str, str]:
    return {
        "/etc/hosts": hosts,
        "/etc/hostname": name + "\n",
        "/etc/resolv.conf": "# A node has no name server: its names are in /etc/hosts.\n",
        "/etc/nsswitch.conf": _nsswitch(),
    }


def _nsswitch() -> str:
    """The machine's nsswitch.conf, but host names come from /etc/hosts alone."""
    try:
        with open("/etc/nsswitch.conf", encoding="utf-8", errors="replace") as file:
            lines = [line for line in file.read().splitlines() if not line.lstrip().startswith("hosts:")]
    except OSError:
        lines = []
    return "\n".join([*lines, "hosts: files", ""])


def _mount_sys(cgroups: int | None) -> None:
    """A new sysfs, because /sys/class/net shows the interfaces of the namespace it was mounted in."""
    try:
        kernel.mount("sysfs", "/sys", "sysfs", _PSEUDO)
    except OSError:
        # Refused in some containers. Programs then see the machine's interfaces in /sys, the node's elsewhere.
        return
    finally_path = f"/proc/self/fd/{cgroups}"
    if cgroups is not None:
        try:
            kernel.mount(finally_path, "/sys/fs/cgroup", "", kernel.MS_BIND | kernel.MS_REC)
        except OSError:
            pass  # Only programs that read their memory limit miss it.
        os.close(cgroups)


def _open_directory(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _serve(requests: socket.socket) -> NoReturn:
    """Start a keeper per request until the switch is gone; collect whatever ends."""
    wake_reader, wake_writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    poller = select.poll()
    poller.register(requests.fileno(), select.POLLIN)
    poller.register(wake_reader, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == wake_reader:
                os.read(wake_reader, 512)
                _reap()
            elif not _serve_one(requests, (wake_reader, wake_writer)):
                os._exit(0)


def _serve_one(requests: socket.socket, ours: tuple[int, int]) -> bool:
    data, files, _ = channel.receive_raw(requests)
    if not data:
        return False
    try:
        message = channel.decode(data)
        if message.get("op") == "hello" and len(files) == 1:
            # Who answers is what is asked: the pid travels with the message, translated by the kernel.
            with socket.socket(fileno=os.dup(files[0])) as asker:
                channel.send(asker, {"hello": True})
        elif message.get("op") == "start" and len(files) == 4:
            if os.fork() == 0:
                signal.set_wakeup_fd(-1)
                channel.close_all(ours)
                requests.close()
                program.keep(message, files)
    except OSError:
        pass  # The asker is gone, or the process table is full: closing the files below tells it.
    finally:
        channel.close_all(files)
    return True


def _reap() -> None:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
