"""A node: PID 1 of its own namespaces, with its own name, /etc/hosts, /proc and /sys. Forks program keepers."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from pathlib import Path
from typing import Any, NoReturn

from rocelab.fabric.keeper import channel, kernel, program
from rocelab.fabric.keeper.children import ChildWatch, reap

_MOUNT_HINT = (
    "A node needs its own /proc. In a container without --privileged the kernel refuses that; start the "
    "container with --privileged (or --security-opt systempaths=unconfined)."
)
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- covered by a mount of its own, nothing is written to it
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
    """Give the node its own view of the files and pseudo file systems that say its name and place."""
    kernel.mount("none", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    cgroups = _open_directory("/sys/fs/cgroup")
    # A scratch file system on a directory that is certain to exist and is about to be covered
    # anyway, so that nothing is left in, or named in, the file system of the machine.
    kernel.mount("tmpfs", "/proc", "tmpfs", _PSEUDO, "mode=755")
    for path, text in _files(name, hosts).items():
        scratch = Path("/proc") / path.name
        scratch.write_text(text, encoding="utf-8")
        if path.exists():
            kernel.mount(str(scratch), str(path), "", kernel.MS_BIND)
    kernel.unmount("/proc")
    kernel.mount("proc", "/proc", "proc", _PSEUDO)
    if _SHARED_MEMORY.is_dir():
        kernel.mount("tmpfs", str(_SHARED_MEMORY), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=1777")
    if Path("/run/nscd").is_dir():
        # The C library asks this daemon for host names before it reads /etc/hosts.
        kernel.mount("tmpfs", "/run/nscd", "tmpfs", _PSEUDO, "mode=755")
    _mount_sys(cgroups)


def _files(name: str, hosts: str) -> dict[Path, str]:
    return {
        Path("/etc/hosts"): hosts,
        Path("/etc/hostname"): name + "\n",
        Path("/etc/resolv.conf"): "# A node has no name server: its names are in /etc/hosts.\n",
        Path("/etc/nsswitch.conf"): _nsswitch(),
    }


def _nsswitch() -> str:
    """The machine's nsswitch.conf, but host names come from /etc/hosts alone."""
    try:
        text = Path("/etc/nsswitch.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("hosts:")]
    return "\n".join([*lines, "hosts: files", ""])


def _mount_sys(cgroups: int | None) -> None:
    """A new sysfs, because /sys/class/net shows the interfaces of the namespace it was mounted in."""
    try:
        kernel.mount("sysfs", "/sys", "sysfs", _PSEUDO)
    except OSError:
        # Refused in some containers. Programs then see the machine's interfaces in /sys, the node's
        # elsewhere.
        return
    if cgroups is not None:
        # Only programs that read their memory limit would miss it.
        with contextlib.suppress(OSError):
            kernel.mount(f"/proc/self/fd/{cgroups}", "/sys/fs/cgroup", "", kernel.MS_BIND | kernel.MS_REC)
        os.close(cgroups)


def _open_directory(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None


def _serve(requests: socket.socket) -> NoReturn:
    """Start a keeper per request until the switch is gone; collect whatever ends."""
    watch = ChildWatch()
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    poller.register(watch, select.POLLIN)
    while True:
        for fd, _ in poller.poll():
            if fd == watch.fileno():
                watch.clear()
                reap()
            elif not _serve_one(requests, watch):
                os._exit(0)


def _serve_one(requests: socket.socket, watch: ChildWatch) -> bool:
    data, files, _ = channel.receive_raw(requests)
    if not data:
        return False
    try:
        message = channel.decode(data)
        if message.get("op") == "hello" and len(files) == 1:
            # The question is which process answers: the pid travels with the message, translated by
            # the kernel.
            with socket.socket(fileno=os.dup(files[0])) as asker:
                channel.send(asker, {"hello": True})
        elif message.get("op") == "start" and len(files) == 4 and os.fork() == 0:
            watch.forget()
            requests.close()
            program.keep(message, files)
    except OSError:
        pass  # The asker is gone, or the process table is full: closing the files below tells it.
    finally:
        channel.close_all(files)
    return True
