"""Where the programs of a run are on each host, and copies of rocelab's and the study's own where a host has none.

Command lines are made on this machine, with names, or with paths of this machine. A host has a program at the place
that hosts.toml names, else at the same path (a file system that hosts share), else in PATH.
"""

from __future__ import annotations

import shutil
from base64 import b64encode
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from rocelab.fabric.base import LaunchError
from rocelab.hosts.fabric import HostsFabric
from rocelab.hosts.running import HostRunning
from rocelab.hosts.session import Session

#: Programs of rocelab's own, by how their names begin; these can be copied.
_OWN: Final = ("urxe", "rocelab-")
#: What has to lie beside a program.
_BESIDE: Final[Mapping[str, tuple[str, ...]]] = {"urxe": ("liburxe.so",)}
#: Programs with a path of which a copy would not do.
_NOT_ALONE: Final = frozenset({"mpiexec", "mpiexec.hydra", "mpiexec.openmpi", "mpiexec.mpich"})
_PIECE_BYTES: Final = 48 << 10
_TRY_LIMIT_S: Final = 20.0
_STAGED: Final = "staged"

#: For each host, where each program is, by the name that command lines have.
Places = dict[str, dict[str, str]]


def find(fabric: HostsFabric, programs: Iterable[str]) -> tuple[Places, dict[str, list[str]]]:
    """Where the programs are, and the hosts that lack each that is missing."""
    programs = list(programs)
    candidates = {program: _candidates(fabric, program) for program in programs}
    names = sorted({each for wanted in candidates.values() for each in wanted})
    asked = {name: session.submit("find", programs=names) for name, session in fabric.sessions.items()}
    places: Places = {}
    missing: dict[str, list[str]] = {}
    for host, session in fabric.sessions.items():
        found = session.await_answer(asked[host])["found"]
        places[host] = {}
        for program, wanted in candidates.items():
            place = next((found[each] for each in wanted if found[each]), None)
            if place is None:
                missing.setdefault(program, []).append(host)
            elif place != program:
                places[host][program] = place
    return places, missing


def _candidates(fabric: HostsFabric, program: str) -> list[str]:
    name = Path(program).name
    named = fabric.inventory.table.programs.get(name)
    # What a person names is meant, and nothing in its place.
    return [named] if named is not None else list(dict.fromkeys((program, name)))


def can_be_staged(program: str) -> bool:
    """Whether it is rocelab's own or the study's, and here to be copied."""
    if _is_rocelabs(program):
        return shutil.which(program) is not None
    # What a study brings has a path; mpiexec has one as well, and is nothing without its libraries.
    return "/" in program and Path(program).is_file() and Path(program).name not in _NOT_ALONE


def _is_rocelabs(program: str) -> bool:
    return Path(program).name.startswith(_OWN)


def stage(fabric: HostsFabric, places: Places, lacking: Iterable[str]) -> None:
    """Copy programs that hosts lack to the folder of the run. Raises LaunchError where one does not run.

    All hosts get a copy, also those that have the program: an MPI starts one path everywhere.
    """
    for number, program in enumerate(lacking):
        ours = Path(shutil.which(program) or program).resolve()
        files = [ours, *(ours.with_name(each) for each in _BESIDE.get(ours.name, ()))]
        for host, session in fabric.sessions.items():
            place, *_ = [_copy(session, file, f"{_STAGED}/{number}") for file in files]
            if _is_rocelabs(program):
                _try(session, place, program)
            common = fabric.common_folder
            places[host][program] = place if common is None else f"{common}/{_STAGED}/{number}/{ours.name}"


def _copy(session: Session, file: Path, folder: str) -> str:
    place = ""
    mode = 0o755 if file.stat().st_mode & 0o111 else 0o644
    with file.open("rb") as content:
        while piece := content.read(_PIECE_BYTES):
            data = b64encode(piece).decode()
            place = str(session.ask("write", name=f"{folder}/{file.name}", data=data, mode=mode)["path"])
    return place


def _try(session: Session, place: str, program: str) -> None:
    finished = HostRunning.start(session, [place, "--version"]).wait(_TRY_LIMIT_S)
    if finished.exit_status != 0:
        said = (finished.stderr or finished.stdout or "no reason is known").strip().splitlines()[-1]
        raise LaunchError(
            f"{session.name}: {Path(program).name} of this machine does not run there: {said}. "
            "Build rocelab on a machine like it, and name the program in hosts.toml under [programs]"
        )
