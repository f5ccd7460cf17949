"""Runs rocelab-mpi and rocelab-nas under each MPI on this machine alone, through shared memory."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
LIMIT_S: Final = 250
#: Options of mpirun: more ranks than processors.
MPIRUN_OPTIONS: Final = {
    "openmpi": ("--oversubscribe", "--allow-run-as-root"),
    "mpich": (),
}


@dataclass(frozen=True)
class Mpi:
    """One MPI with the programs that were built for it."""

    name: str
    program: Path
    mpirun: Path

    def run(self, ranks: int, *arguments: str, program: Path | None = None) -> subprocess.CompletedProcess[str]:
        """Start that many ranks; gives what they printed."""
        start = (str(self.mpirun), *MPIRUN_OPTIONS[self.name], "-n", str(ranks))
        command = [*start, str(program or self.program), *arguments]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
            env=_environment(),
        )

    @property
    def nas(self) -> Path:
        """rocelab-nas, which is built beside it."""
        return self.program.with_name("rocelab-nas")

    def samples(
        self, ranks: int, *arguments: str, status: int = 0, program: Path | None = None
    ) -> Sequence[dict[str, Any]]:
        """What --json prints, line by line."""
        done = self.run(ranks, *arguments, "--json", program=program)
        assert done.returncode == status, f"{done.stdout}\n{done.stderr}"
        return [json.loads(line) for line in done.stdout.splitlines()]


def _environment() -> dict[str, str]:
    """Waiting ranks spin; on a machine with few processors they must let each other run."""
    openmpi = {"OMPI_MCA_mpi_yield_when_idle": "1", "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"}
    return os.environ | openmpi | {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1"}


@cache
def _find(name: str) -> Mpi | None:
    program = ROOT / "bench" / "build" / name / "rocelab-mpi"
    mpirun = ROOT / ".build" / "programs" / name / "bin" / "mpirun"
    return Mpi(name, program, mpirun) if program.exists() and mpirun.exists() else None


@pytest.fixture(scope="session")
def any_mpi() -> Mpi:
    """One of them, for what does not depend on it. MPICH starts faster."""
    found = _find("mpich") or _find("openmpi")
    if found is None:
        pytest.skip("rocelab-mpi is not built: make setup-programs build")
    return found


@pytest.fixture(params=["openmpi", "mpich"], scope="session")
def mpi(request: pytest.FixtureRequest) -> Mpi:
    """Each of them."""
    found = _find(request.param)
    if found is None:
        pytest.skip(f"rocelab-mpi is not built for {request.param}: make setup-programs build")
    return found
