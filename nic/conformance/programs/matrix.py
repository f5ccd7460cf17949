"""Reads the matrix: which programs run, how, and what proves that they worked. The data is in matrix/*.toml.

A file holds one suite of programs. Its `[[group]]` tables say what its runs have in common, and
each of their `runs` is one program with its options. It is a string, whose first word is the
program, or a table where a run differs from its group. `{server}` and `{client}` stand for the
addresses of the two nodes, `{server6}` and `{client6}` for their IPv6 addresses, `{device}` for the
RDMA device, and `{interface}` for its network interface. `{program}` and `{options}` stand for the
two parts of a run, and `{alone}` for what `ucx_perftest` needs to run without mpirun. Folders are
`{here}` for that of this file, `{root}` for the repository, `{pyverbs}` for where pyverbs is
installed, `{rdmacore}` for rdma-core's tests, `{libraries}` for shared libraries, and `{scratch}`
for an empty one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]


@dataclass(frozen=True, slots=True)
class Entry:
    """One run of one program, which is one test."""

    suite: str
    program: str
    options: str
    #: Command line of the client, whose output is judged.
    client: str
    #: Command line of the server on the other node; None if the program runs alone.
    server: str | None = None
    #: The Debian package that has the program.
    package: str | None = None
    #: A file that has to be there as well, and what installs it.
    needs: str | None = None
    remedy: str = "`make setup-packages setup-programs`"
    #: What the output of the client has to contain, as regular expressions (multi-line): all of
    #: them.
    proves: tuple[str, ...] = ()
    #: The same for the output of the server, which is stopped if it does not end by itself.
    server_proves: tuple[str, ...] = ()
    #: At least so many bytes of packets, sent and received, have to be in urxe's captures of the
    #: client.
    carries_bytes: int = 0
    #: Of which a line in the output excuses an exit status that is not 0: trouble that is the
    #: program's own.
    excuses: str | None = None
    #: When the client may start: `tcp:PORT` or `udp:PORT` of the server is open, then after
    #: `pause_s`.
    ready: str | None = None
    pause_s: float = 0.0
    #: Whether the server goes on after its client, so that it has to be stopped.
    server_stays: bool = False
    #: Added to the environment of both.
    env: Mapping[str, str] = field(default_factory=dict)
    #: No judgement of speed: on two busy processors libfabric, which reads `/proc/kallsyms`, takes
    #: 15 s to begin.
    limit_s: float = 180.0
    #: The first release of rdma-core that it is for, and the first that it is not for any more:
    #: command lines change.
    since: int | None = None
    before: int | None = None
    #: Why it does not work yet. The test then has to fail, and turns red when it no longer does.
    xfail: str | None = None
    #: Told apart from another run of the same program with the same options.
    note: str = ""

    @property
    def id(self) -> str:
        """The name of the test."""
        return " ".join(part for part in (self.program, self.options, self.note) if part)

    def is_for(self, release: int | None) -> bool:
        """Whether it is meant for a release of rdma-core; None is one that is not known."""
        if release is None:
            return True
        return (self.since is None or release >= self.since) and (self.before is None or release < self.before)


class MatrixError(Exception):
    """A file of the matrix cannot be read. The text says where."""


def read(folder: Path = HERE / "matrix") -> tuple[Entry, ...]:
    """All entries, file by file in the order of their names."""
    entries = tuple(entry for path in sorted(folder.glob("*.toml")) for entry in _entries(path))
    seen: set[str] = set()
    for entry in entries:
        if entry.id in seen:
            raise MatrixError(f"{entry.suite}.toml: there are two runs of {entry.id!r}; give one a note")
        seen.add(entry.id)
    return entries


def _entries(path: Path) -> Iterator[Entry]:
    for group in tomllib.loads(path.read_text(encoding="utf-8"))["group"]:
        common = {key: value for key, value in group.items() if key != "runs"}
        for run in group["runs"]:
            yield _entry(path, {**common, **({"run": run} if isinstance(run, str) else run)})


def _entry(path: Path, settings: dict[str, Any]) -> Entry:
    program, _, options = settings.pop("run").partition(" ")
    known = {each.name for each in fields(Entry)} - {"suite", "program", "options"}
    if unknown := settings.keys() - known:
        raise MatrixError(f"{path.name}: {program} {options}: no such setting: {', '.join(sorted(unknown))}")
    for name in ("proves", "server_proves"):
        if isinstance(settings.get(name), str):
            settings[name] = (settings[name],)
        elif name in settings:
            settings[name] = tuple(settings[name])
    return Entry(suite=path.stem, program=program, options=options, **settings)
