"""Open MPI and MPICH as PyPI has them: 16 processes on 4 nodes, which have nothing but urxe between them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LaunchError, LinkProfile
from rocelab.launch import mpi
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools.interconnects import urxe

from .matrix import HERE
from .running import LINK, LINK_MTU_BYTES

NODES = 4
RANKS = 16
LIMIT_S = 60.0

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(150)]


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)], emulated.default_names(NODES))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


@pytest.mark.parametrize("variant", mpi.variants("soft-roce"))
def test_mpi4py(fabric: emulated.EmulatedFabric, variant: str) -> None:
    kind, transport = mpi.transport("soft-roce", variant)
    implementation = mpi.own(kind)
    if not implementation.mpiexec.exists():
        pytest.skip(f"there is no {implementation.title}: {implementation.remedy}")
    job = mpi.Job(
        argv=[str(implementation.folder / "python"), str(HERE / "allreduce.py")],
        hosts=[node.name for node in fabric.nodes],
        interface=fabric.nodes[0].interfaces[LINK],
        ranks_per_node=RANKS // NODES,
        wrapper=[urxe().name, "run", "--"],
    )
    env = mpi.environment(job, transport)
    launcher = NamespaceLauncher(fabric)
    try:
        with launcher.remote_shell(env) as shell:
            argv = mpi.command(implementation, job, transport, shell)
            finished = launcher.start(fabric.nodes[0], argv, env={**env, **shell.env}).wait(LIMIT_S)
    except LaunchError as error:
        pytest.fail(str(error))
    said = finished.stdout + finished.stderr
    assert not finished.timed_out, f"still running after {LIMIT_S:g} s\n{said}"
    assert finished.exit_status == 0, said
    assert f"{RANKS} ranks on {NODES} nodes: all data right" in said, said
