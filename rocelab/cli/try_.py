"""``rocelab try``: an MPI program over TCP and over Soft RoCE, without a study file."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import tomlkit
import typer

from rocelab.cli.problems import fail
from rocelab.cli.run import measure
from rocelab.fabric.base import FabricError, LaunchError
from rocelab.fabric.plan import NODES_MAX
from rocelab.launch.mpi import KINDS, Kind
from rocelab.results import ResultsError
from rocelab.study.problems import StudyError

_STARTERS: Final = frozenset({"mpirun", "mpiexec", "mpiexec.hydra", "mpirun.openmpi", "mpirun.mpich", "prterun"})
_COUNTS: Final = frozenset({"-n", "-np", "--np", "-c"})
#: What programs of each MPI are linked with, by its versions of the library.
_LIBRARIES: Final[dict[Kind, re.Pattern[str]]] = {
    "openmpi": re.compile(r"libmpi\.so\.40 => (\S+)"),
    "mpich": re.compile(r"libmpi(?:ch)?\.so\.12 => (\S+)"),
}
_VARIANTS: Final[dict[Kind, dict[str, list[str]]]] = {
    "openmpi": {"tcp": ["openmpi-ob1", "openmpi-ucx"], "soft-roce": ["openmpi-ucx"]},
    "mpich": {"tcp": ["mpich-ofi", "mpich-ucx"], "soft-roce": ["mpich-ucx", "mpich-ofi"]},
}
_LDD_LIMIT_S: Final = 20.0


@dataclass(frozen=True)
class _Program:
    argv: list[str]
    ranks: int | None


def try_(  # noqa: PLR0917, typer makes an option of each
    command: Annotated[list[str], typer.Argument(help="Such as: mpirun -n 4 ./a.out 512", metavar="-- COMMAND...")],
    nodes: Annotated[int, typer.Option(min=2, max=NODES_MAX, help="On how many nodes.")] = 2,
    regex: Annotated[
        str | None,
        typer.Option(help="Where its result is in what it prints: the first group. Else it is how long it takes."),
    ] = None,
    metric: Annotated[str, typer.Option(help="What the result is called; a time ends on its unit.")] = "time_s",
    unit: Annotated[str, typer.Option(help="Its unit.")] = "s",
    rate_mbps: Annotated[
        float | None, typer.Option(min=1, help="Shape the links; else they are as fast as the machine.")
    ] = None,
    repetitions: Annotated[int, typer.Option(min=1, max=1000, help="How often.")] = 3,
    results: Annotated[Path, typer.Option(help="Where runs are kept.")] = Path("results"),
    fabric: Annotated[str | None, typer.Option(help="'hosts': machines of yours.")] = None,
    hosts: Annotated[str | None, typer.Option(help="With --fabric hosts, as for `rocelab run`.")] = None,
) -> None:
    """Run an MPI program of yours over TCP and over Soft RoCE, and show what differs.

    The run has the study that says the same, to go on from: `study.toml` in its folder. Exit status: as `rocelab run`.
    """
    program = _parsed(command)
    path = shutil.which(program.argv[0])
    if path is None:
        fail("try", f"there is no program {program.argv[0]}")
    kind, folder = _linked_with(path)
    ranks = program.ranks or nodes
    if ranks % nodes:
        fail("try", f"{ranks} processes are not the same number on each of {nodes} nodes: choose --nodes or -n")
    program.argv[0] = str(Path(path).resolve())
    table = _study(program.argv, kind, folder, nodes, ranks // nodes)
    table["repetitions"] = repetitions
    test = table["test"][0]
    test["metric"] = {"name": metric, "unit": unit, **({"clock": "wall"} if regex is None else {"regex": regex})}
    if rate_mbps is not None:
        table["link"][0] |= {"rate_mbps": rate_mbps}
    with tempfile.TemporaryDirectory(prefix="rocelab-try-") as scratch:
        file = Path(scratch, "try.toml")
        file.write_text(tomlkit.dumps(table), encoding="utf-8")
        try:
            ((_, status),) = measure([str(file)], results=results, fabric=fabric, hosts=hosts)
        except StudyError as error:
            fail("try", error)
        except (FabricError, LaunchError, ResultsError, OSError) as error:
            fail("try", error)
    raise typer.Exit(status)


def _parsed(command: Sequence[str]) -> _Program:
    """The program and how many processes, of a command line of mpirun or without it."""
    words = list(command)
    ranks: int | None = None
    if Path(words[0]).name in _STARTERS:
        words.pop(0)
        while words and words[0].startswith("-"):
            option = words.pop(0)
            if option not in _COUNTS or not words or not words[0].isdecimal():
                fail("try", f"rocelab starts the program itself; of mpirun's options it takes -n N, and not {option}")
            ranks = int(words.pop(0))
    if not words:
        fail("try", "no program was named: rocelab try -- mpirun -n 4 ./a.out")
    return _Program(words, ranks)


def _linked_with(path: str) -> tuple[Kind, str]:
    """The MPI of a program, and the folder of that MPI, or `system`."""
    try:
        done = subprocess.run(
            ["ldd", path],  # noqa: S607, wherever the system has it
            capture_output=True, text=True, timeout=_LDD_LIMIT_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        fail("try", f"{path}: ldd cannot say which MPI it is linked with ({error})")
    for kind in KINDS:
        if (found := _LIBRARIES[kind].search(done.stdout)) is not None:
            folder = Path(found[1]).parent.parent
            return kind, str(folder) if (folder / "bin" / "mpiexec").exists() and folder != Path("/usr") else "system"
    return fail(
        "try",
        f"{path} is linked with neither Open MPI nor MPICH. What is no MPI program needs a study: "
        "docs/programs-of-your-own.md",
    )


def _study(argv: Sequence[str], kind: Kind, folder: str, nodes: int, ranks_per_node: int) -> dict[str, Any]:
    name = re.sub(r"[^a-z0-9-]+", "-", Path(argv[0]).name.lower()).strip("-")[:36] or "program"
    return {
        "schema": 1,
        "id": "try",
        "title": f"{Path(argv[0]).name} over TCP and Soft RoCE",
        "time_limit_s": 600,
        "folder": str(Path.cwd()),
        "fabric": {"nodes": nodes},
        "tcp": {"congestion_control": ["default"]},
        "mpi": {kind: folder},
        "link": [{"id": "ethernet", "kind": "bridge", "mtu_bytes": 9000}],
        "test": [
            {
                "level": "program",
                "test": name,
                "run": "mpi",
                "command": list(argv),
                "ranks_per_node": ranks_per_node,
                "variants": _VARIANTS[kind],
            }
        ],
    }
