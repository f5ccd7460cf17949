"""Where rocelab's own programs are, in a checkout and where it is installed: the one place that knows both.

A checkout has them where `make build` and `make setup` put them. An installed package (a wheel, a Debian package) has
urxe, rocelab-sock and rocelab-virtual beside its Python or in PATH. It has no MPI libraries and no jars: these are in a
folder that a checkout's `make setup` makes, which $ROCELAB_PROGRAMS names.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent
_BENCH: Final = Path("bench", "build")
_RELEASE: Final = Path("nic", "target", "release")


@dataclass(frozen=True, slots=True)
class _Own:
    """A program: the environment variable that names another, where a checkout builds it, and by which command."""

    variable: str
    built: Path
    make: str


_OWN: Final = {
    "urxe": _Own("ROCELAB_URXE", _RELEASE / "urxe", "make build"),
    "rocelab-virtual": _Own("ROCELAB_VIRTUAL", _RELEASE / "rocelab-virtual", "make build"),
    "rocelab-sock": _Own("ROCELAB_SOCK", _BENCH / "rocelab-sock", "make -C bench"),
}


def checkout() -> Path | None:
    """The root of the checkout that this code is in; None for an installed package."""
    root = _PACKAGE.parent
    return root if (root / "nic" / "Cargo.toml").is_file() else None


def own(name: str) -> tuple[str, str]:
    """What to start for one of rocelab's own programs, and what to do where it is missing.

    That is what its variable names, else the checkout's build, else what is installed beside this Python, else PATH's.
    """
    program = _OWN[name]
    if checkout() is None:
        remedy = f"it is installed with rocelab: install that again, or name {name} in ${program.variable}"
    else:
        remedy = f"build it with `{program.make}`, or name it in ${program.variable}"
    if named := os.environ.get(program.variable):
        # A user that names one wants that one, and no other in its place.
        return named, f"{named}, which ${program.variable} names, is not there; {remedy}"
    candidates = [Path(sysconfig.get_path("scripts"), name)]
    if (root := checkout()) is not None:
        candidates.insert(0, root / program.built)
    return next((str(path) for path in candidates if shutil.which(path)), name), remedy


def fetched() -> Path:
    """The folder of MPI libraries and jars, by `make setup`: $ROCELAB_PROGRAMS, or the checkout's."""
    return _in_checkout_or_named("ROCELAB_PROGRAMS", Path(".build", "programs"))


def mpi_benchmarks() -> Path:
    """The folder of rocelab-mpi and rocelab-nas, a folder in it for each MPI: $ROCELAB_MPI_BENCH, or the checkout's."""
    return _in_checkout_or_named("ROCELAB_MPI_BENCH", _BENCH)


def workloads() -> Path:
    """The folder of YCSB's workloads."""
    root = checkout()
    return _PACKAGE / "workloads" if root is None else root / "cloud" / "workloads"


def studies() -> Path:
    """The folder of the studies that come with rocelab."""
    return (checkout() or _PACKAGE) / "studies"


def remedy(command: str, variable: str) -> str:
    """What to do where something is missing that a command of a checkout makes."""
    if checkout() is None:
        return f"a checkout of rocelab has it after `{command}`: name its folder there in ${variable}"
    return f"`{command}` makes it, or name its folder in ${variable}"


def _in_checkout_or_named(variable: str, folder: Path) -> Path:
    if named := os.environ.get(variable):
        return Path(named)
    if (root := checkout()) is not None:
        return root / folder
    # An installed package has none; a person may put a link to a checkout there.
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share", "rocelab") / folder
