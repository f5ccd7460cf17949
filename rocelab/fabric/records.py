"""Persistent fabrics: made by one command, used by others, removed by a last one.

A record is a JSON file beside the fabric's socket in a directory of this user; nothing but the fabric's own
processes exists besides. A record whose process has ended is dead: it is listed as such and removed by `down`.
`leftovers` finds fabrics by their processes alone, for when records were lost or an owner died oddly.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import signal
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile, Node
from rocelab.fabric.process import Identity, boot_id, identity_or_none, pid_namespace

END_LIMIT_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of one persistent fabric."""

    name: str
    keeper: Identity
    pid_namespace: str
    """Where the keeper's pid says which process it is."""
    created_at: str
    links: tuple[LinkProfile, ...]
    nodes: tuple[Node, ...]
    path: Path

    @property
    def alive(self) -> bool:
        """Whether the fabric still runs."""
        return emulated.answers(self.socket_path) if self.elsewhere else self.keeper.alive()

    @property
    def elsewhere(self) -> bool:
        """Whether it was made in another PID namespace (a node, a container, the host): its processes are not seen."""
        return self.pid_namespace != pid_namespace() and self.keeper.boot == boot_id()

    @property
    def socket_path(self) -> Path:
        """Where the fabric answers."""
        return self.path.with_suffix(".sock")

    def attach(self) -> emulated.EmulatedFabric:
        """Reach the fabric; FabricError if it is dead."""
        if not self.alive:
            raise FabricError(f"fabric {self.name} has ended; remove its record with: rocelab fabric down {self.name}")
        return emulated.attach(self.name, self.links, self.nodes, self.socket_path)


@dataclass(frozen=True, slots=True)
class Leftover:
    """A fabric found by its processes. `owner` is the running process it belongs to, if there is one."""

    name: str
    keeper: Identity
    kind: Literal["persistent", "run"]
    owner: Identity | None
    #: Where a persistent one answers, or answered.
    socket_path: Path | None = None


def create(name: str, links: Sequence[LinkProfile], names: Sequence[str]) -> Record:
    """Make a persistent fabric and its record. FabricError if the name is taken or the machine cannot."""
    _check_name(name)
    directory = _writable_directory()
    with _alone_in(directory):
        return _create(name, links, names, directory / f"{name}.json")


def _create(name: str, links: Sequence[LinkProfile], names: Sequence[str], path: Path) -> Record:
    existing = find(name)
    if existing is not None and existing.alive:
        raise FabricError(f"there is a fabric {name} already; choose another name or run: rocelab fabric down {name}")
    if existing is not None:
        _forget(existing)
    socket_path = path.with_suffix(".sock")
    # Left by a fabric that ended before its record was written: nothing else makes files here.
    socket_path.unlink(missing_ok=True)
    try:
        fabric, keeper = emulated.up_persistent(links, names, name=name, socket_path=socket_path)
    except BaseException:
        socket_path.unlink(missing_ok=True)
        raise
    with fabric:
        record = Record(name, keeper, pid_namespace(), _now(), fabric.links, fabric.nodes, path)
    try:
        temporary = path.with_suffix(".new")
        temporary.write_text(json.dumps(_to_json(record), indent=1), encoding="utf-8")
        temporary.replace(path)
    except BaseException:
        remove(record)
        raise
    return record


def get(name: str) -> Record:
    """The record of that name; FabricError if there is none."""
    record = find(name)
    if record is None:
        known = ", ".join(found.name for found in records()) or "none"
        raise FabricError(f"there is no fabric {name!r}; there are: {known}. Make one with: rocelab fabric up {name}")
    return record


def find(name: str) -> Record | None:
    """The record of that name, dead or alive; None if there is none."""
    return next((record for record in records() if record.name == name), None)


def records() -> list[Record]:
    """All records of this user, by name. A file that cannot be read is passed over."""
    found: dict[str, Record] = {}
    for directory in _directories():
        for path in sorted(directory.glob("*.json")) if _is_ours(directory) else ():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                record = _from_json(json.loads(path.read_text(encoding="utf-8")), path)
                found.setdefault(record.name, record)
    return [found[name] for name in sorted(found)]


def leftovers() -> list[Leftover]:
    """Fabrics of this user that run without a record, found among the processes.

    Not those whose socket is in a folder that is not looked at here: another login has them on record.
    """
    recorded = {record.keeper.pid for record in records()}
    return [
        found
        for found in _running()
        if found.keeper.pid not in recorded
        and (found.socket_path is None or found.socket_path.parent in _directories() or not found.socket_path.exists())
    ]


def remove(record: Record) -> None:
    """End a persistent fabric completely and forget it. FabricError if a process cannot be ended."""
    if not record.elsewhere:
        end(record.keeper, record.name)
    elif record.alive:
        raise FabricError(
            f"fabric {record.name} was made elsewhere (on the host, if this is a node or a container), and its "
            f"processes are not seen from here; remove it there with: rocelab fabric down {record.name}"
        )
    _forget(record)


def end(keeper: Identity, name: str) -> None:
    """End the processes of a fabric. Killing the guard kills the switch, and the kernel the rest."""
    if not keeper.alive():
        return
    # Names may be the same in two folders of records; the session, which the guard began, is never.
    others = [found.keeper for found in _running(all_keepers=True) if _session(found.keeper.pid) == keeper.pid]
    for process in [keeper, *others]:
        if process.alive():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    deadline_s = time.monotonic() + END_LIMIT_S
    while any(process.alive() for process in [keeper, *others]):
        if time.monotonic() > deadline_s:
            raise FabricError(f"fabric {name} (pid {keeper.pid}) does not end; a process of it is stuck in the kernel")
        time.sleep(0.01)


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _running(*, all_keepers: bool = False) -> Iterator[Leftover]:
    """Fabrics by their processes: the first process of each, or every process that keeps one."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            if emulated.MARKER not in words or entry.stat().st_uid != os.getuid():
                continue
            is_first = all_keepers or (entry / "comm").read_text().strip() == "rocelab-guard"
        except OSError:
            continue  # It ended meanwhile.
        keeper = identity_or_none(int(entry.name))
        at = words.index(emulated.MARKER)
        if keeper is None or not is_first or len(words) < at + 3:
            continue
        tie = words[at + 2]
        owner = Identity.parse(tie.removeprefix("owner=")) if tie.startswith("owner=") else None
        kind: Literal["persistent", "run"] = "run" if owner else "persistent"
        socket_path = Path(tie.removeprefix("socket=")) if tie.startswith("socket=") else None
        yield Leftover(words[at + 1], keeper, kind, owner if owner and owner.alive() else None, socket_path)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """One maker at a time, or two could take the same name. The lock goes with the process that has it."""
    number = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise FabricError(
            f"{name!r} cannot be the name of a fabric: 1 to 32 letters, digits, dots, hyphens and underscores, "
            "starting with a letter or digit"
        )


def _forget(record: Record) -> None:
    record.path.unlink(missing_ok=True)
    record.socket_path.unlink(missing_ok=True)


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _directories() -> list[Path]:
    """Where records may be, best first. All are looked at, because the environment differs between logins."""
    own = f"rocelab-{os.getuid()}/fabrics"
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [Path(runtime) / own] if runtime and Path(runtime).is_absolute() else []
    return [*candidates, Path("/run") / own, Path("/tmp") / own]  # noqa: S108 -- _is_ours looks whose it is


def _writable_directory() -> Path:
    for directory in _directories():
        with contextlib.suppress(OSError):
            directory.parent.mkdir(mode=0o700, exist_ok=True)
            if _is_ours(directory.parent):
                directory.mkdir(mode=0o700, exist_ok=True)
                return directory
    looked = ", ".join(str(directory.parent) for directory in _directories())
    raise FabricError(f"no directory for the records of fabrics can be made; tried {looked}")


def _is_ours(directory: Path) -> bool:
    """Whether no other user can have put something there: in /tmp any user can make any directory."""
    try:
        about = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid() and not about.st_mode & 0o022


def _to_json(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "keeper": str(record.keeper),
        "pid_namespace": record.pid_namespace,
        "created_at": record.created_at,
        "links": [asdict(link) for link in record.links],
        "nodes": [asdict(node) for node in record.nodes],
    }


def _from_json(data: Mapping[str, Any], path: Path) -> Record:
    return Record(
        name=data["name"],
        keeper=Identity.parse(data["keeper"]),
        pid_namespace=data["pid_namespace"],
        created_at=data["created_at"],
        links=tuple(LinkProfile(**link) for link in data["links"]),
        nodes=tuple(Node(**node) for node in data["nodes"]),
        path=path,
    )
