"""Open MPI and MPICH as PyPI has them, on nodes with nothing but urxe between them, and the suite over TCP as well."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from rocelab import peers
from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, Finished, LaunchError, LinkProfile
from rocelab.launch import mpi
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools import rocelab_mpi
from rocelab.tools.interconnects import urxe

from .matrix import HERE
from .running import LINK, LINK_MTU_BYTES

NODES = 4
RANKS = 16
LIMIT_S = 300.0

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)], emulated.default_names(NODES))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


def run(
    fabric: emulated.EmulatedFabric, interconnect: str, variant: str, nodes: int, ranks_per_node: int, *words: str
) -> Finished:
    """Run a program, whose first word is a path or a file of the implementation's: what it left, once it ended well.

    `{kind}` in a word is the implementation.
    """
    kind, transport = mpi.transport(interconnect, variant)
    implementation = mpi.own(kind)
    if not implementation.mpiexec.exists():
        pytest.skip(f"there is no {implementation.title}: {implementation.remedy}")
    program, *arguments = (word.replace("{kind}", kind) for word in words)
    job = mpi.Job(
        argv=[str(implementation.folder / program), *arguments],
        hosts=[node.name for node in fabric.nodes[:nodes]],
        interfaces=[node.interfaces[LINK] for node in fabric.nodes[:nodes]],
        ranks_per_node=ranks_per_node,
        wrapper=[urxe().name, "run", "--"] if transport.urxe else [],
    )
    # Other tests are running: a rank that polls in vain is to let them, as the times are of no
    # interest here.
    env = {**mpi.environment(implementation, job, transport), "OMPI_MCA_mpi_yield_when_idle": "1"}
    launcher = NamespaceLauncher(fabric)
    try:
        with launcher.remote_shell(env) as shell:
            argv = mpi.command(implementation, job, shell)
            finished = launcher.start(fabric.nodes[0], argv, env={**env, **shell.env}).wait(LIMIT_S)
    except LaunchError as error:
        pytest.fail(str(error))
    said = finished.stdout + finished.stderr
    assert not finished.timed_out, f"still running after {LIMIT_S:g} s\n{said}"
    assert finished.exit_status == 0, said
    return finished


@pytest.mark.parametrize("variant", mpi.variants("soft-roce"))
def test_mpi4py(fabric: emulated.EmulatedFabric, variant: str) -> None:
    # A condition changes how packets look: two ranks see it.
    nodes, ranks = (NODES, RANKS) if peers.plain_name(variant)[1] is None else (2, 2)
    finished = run(fabric, "soft-roce", variant, nodes, ranks // nodes, "python", str(HERE / "allreduce.py"))
    assert f"{ranks} ranks on {nodes} nodes: all data right" in finished.stdout, finished.stdout + finished.stderr
    # UCX's word when it cannot ask for devices, or something that one should have.
    assert "ERROR" not in finished.stdout + finished.stderr, finished.stdout + finished.stderr


@pytest.mark.parametrize("nodes", [2, NODES])
@pytest.mark.parametrize(
    ("interconnect", "variant"),
    [("tcp", "openmpi-ob1"), ("tcp", "mpich-ofi"), ("soft-roce", "openmpi-ucx"), ("soft-roce", "mpich-ucx")],
)
def test_the_whole_suite(fabric: emulated.EmulatedFabric, interconnect: str, variant: str, nodes: int) -> None:
    """Every benchmark of rocelab-mpi, with its data checked; two nodes run those that are between two processes."""
    kind, _ = mpi.transport(interconnect, variant)
    suite = rocelab_mpi.program(kind, None)
    if suite.path is None:
        pytest.skip(f"there is no {suite.name}: {suite.advice}")
    names = {line.split()[0]: line.partition("  ")[2] for line in _listed(suite.path)}
    wanted = {name for name, about in names.items() if ("    2 ranks" in about) == (nodes == 2)}
    argv = [suite.path, *sorted(wanted), "-m", "4:16", "-i", "2", "-x", "1", "--json"]
    finished = run(fabric, interconnect, variant, nodes, 1, *argv)
    samples = [json.loads(line) for line in finished.stdout.splitlines() if line.startswith("{")]
    assert {sample["benchmark"] for sample in samples} == wanted
    wrong = [sample for sample in samples if sample["validation"] not in ("pass", "none")]
    assert not wrong
    assert {sample["nodes"] for sample in samples} == {nodes}


def _listed(program: str) -> list[str]:
    done = subprocess.run([program, "--list"], capture_output=True, text=True, check=True, timeout=10)
    return done.stdout.splitlines()
