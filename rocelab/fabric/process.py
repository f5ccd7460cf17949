"""Processes by a name that is never reused: pid, start time and boot together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True)
class Identity:
    """One process of one boot of this machine. `started_ticks` as in /proc/PID/stat field 22."""

    pid: int
    started_ticks: int
    boot: str

    def __str__(self) -> str:
        return f"{self.pid}/{self.started_ticks}/{self.boot}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The inverse of str(); ValueError if it is none."""
        pid, ticks, boot = text.split("/")
        return cls(int(pid), int(ticks), boot)

    def alive(self) -> bool:
        """Whether this very process still runs (a zombie does not)."""
        return identity_or_none(self.pid) == self


def boot_id() -> str:
    """A name for this boot of the machine, from the kernel."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def pid_namespace() -> str:
    """A name for the PID namespace of this process: what a pid means outside it is another process, or none."""
    return str(Path("/proc/self/ns/pid").readlink())


def identity(pid: int) -> Identity:
    """The identity of a running process; ProcessLookupError if there is none."""
    found = identity_or_none(pid)
    if found is None:
        raise ProcessLookupError(f"no process {pid}")
    return found


def identity_or_none(pid: int) -> Identity | None:
    """The identity of a running process; None if it has ended (or is a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name, in parentheses, may itself hold spaces and parentheses; the fields follow the last
    # one.
    fields = stat.rpartition(b")")[2].split()
    if len(fields) < 20 or fields[0] in (b"Z", b"X"):
        return None
    return Identity(pid, int(fields[19]), boot_id())
