"""The Linux system calls the keepers need and Python does not have: namespaces, mounts, prctl.

Constants are those of the kernel's public headers: linux/sched.h, linux/mount.h, linux/prctl.h.
"""

from __future__ import annotations

import ctypes
import os
import signal
from pathlib import Path

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_BIND = 0x1000
MS_REC = 0x4000
MS_PRIVATE = 0x4_0000

MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36

CAP_SYS_ADMIN = 21

_libc = ctypes.CDLL(None, use_errno=True)


class KernelError(Exception):
    """A step that the kernel refused: what was tried, the errno, and what a person can do about it."""

    def __init__(self, what: str, errno: int, hint: str = "") -> None:
        super().__init__(f"{what}: {os.strerror(errno)}")
        self.errno = errno
        self.hint = hint


def unshare(flags: int) -> None:
    """Move this process (for CLONE_NEWPID: its next children) into new namespaces. Raises OSError."""
    _check(_libc.unshare(ctypes.c_int(flags)))


def setns(fd: int, kind: int) -> None:
    """Enter the namespace of type `kind` that `fd` refers to. Raises OSError."""
    _check(_libc.setns(ctypes.c_int(fd), ctypes.c_int(kind)))


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Put a file system, or with MS_BIND a file or folder, at `target`. The target is OSError's file name."""
    done = _libc.mount(
        source.encode(), target.encode(), kind.encode() or None, ctypes.c_ulong(flags), data.encode() or None
    )
    _check(done, target)


def unmount(target: str) -> None:
    """Detach the mount at `target`; what is open or bound from it stays usable."""
    _check(_libc.umount2(target.encode(), MNT_DETACH), target)


def set_process_name(name: str) -> None:
    """What ps and top show for this process, at most 15 bytes."""
    _check(_libc.prctl(PR_SET_NAME, name.encode()[:15] + b"\0", 0, 0, 0))


def die_with_parent() -> None:
    """SIGKILL this process when the thread that forked it ends, however it ends."""
    _check(_libc.prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0))


def become_subreaper() -> None:
    """Orphans among this process's descendants become its children, so it can count and end them."""
    _check(_libc.prctl(PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0))


def may_make_namespaces() -> bool:
    """Whether this process has CAP_SYS_ADMIN, so that it needs no user namespace of its own."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    effective = next(line for line in status.splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_SYS_ADMIN & 1)


def _check(result: int, path: str | None = None) -> None:
    if result != 0:
        errno = ctypes.get_errno()
        raise OSError(errno, os.strerror(errno), path)
