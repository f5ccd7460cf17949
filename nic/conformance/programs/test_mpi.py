"""Open MPI and MPICH as PyPI has them: 16 processes on 4 nodes, which have nothing but urxe between them."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LaunchError, LinkProfile
from rocelab.fabric.keeper import channel
from rocelab.launch.namespace import NamespaceLauncher, ProgramRunning, start_on, start_request
from rocelab.tools.interconnects import urxe

from .matrix import HERE, ROOT
from .running import LINK, LINK_MTU_BYTES

NODES = 4
RANKS = 16
LIMIT_S = 60.0
#: What UCX may use: RC with UD to connect, and nothing else between nodes.
UCX = {"UCX_TLS": "rc_v,self,sm", "UCX_NET_DEVICES": "urxe_eth0:1", "UCX_WARN_UNUSED_ENV_VARS": "n"}

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(150)]


class Doorkeeper:
    """Starts on its node what `enter.py` asks for from another."""

    def __init__(self, fabric: emulated.EmulatedFabric, path: Path, env: Mapping[str, str]) -> None:
        self._fabric = fabric
        self._env = env
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen(NODES * 4)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                door, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(door,), daemon=True).start()

    def _answer(self, door: socket.socket) -> None:
        # Who asked may be gone before its answer, and the fabric before its programs: then nobody waits for it.
        with door, contextlib.suppress(OSError, LaunchError):
            data, files, _, _ = socket.recv_fds(door, 1 << 20, 3)
            try:
                request = json.loads(data)
                command = ["sh", "-c", f"cd {shlex.quote(request['cwd'])} && {request['command']}"]
                node = self._fabric.node(request["node"])
                message = start_request(node, command, env=self._env)
                keeper, _ = start_on(self._fabric, node, message, (files[0], files[1], files[2]))
            finally:
                for each in files:
                    os.close(each)
            with keeper:
                report = channel.receive(keeper) or {"exit_status": 255}
            status = int(report["exit_status"])
            door.sendall(str(status if status >= 0 else 128 - status).encode())


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([LinkProfile(LINK, "bridge", mtu_bytes=LINK_MTU_BYTES)], emulated.default_names(NODES))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


def program(implementation: str) -> Path:
    """The bin folder of an MPI's Python environment."""
    folder = ROOT / ".build" / "programs" / implementation / "bin"
    if not (folder / "mpiexec").exists():
        pytest.skip(f"there is no {implementation}; `make setup-programs` installs it from PyPI")
    return folder


def run(fabric: emulated.EmulatedFabric, scratch: Path, argv: list[str], env: Mapping[str, str]) -> str:
    """Run mpiexec on the first node; what it printed, once it has ended well."""
    door = scratch / "door"
    env = {**env, "ROCELAB_ENTER": str(door)}
    doorkeeper = Doorkeeper(fabric, door, env)
    try:
        running: ProgramRunning = NamespaceLauncher(fabric).start(fabric.nodes[0], argv, env=env)
        finished = running.wait(LIMIT_S)
    except LaunchError as error:
        pytest.fail(str(error))
    finally:
        doorkeeper.close()
    said = finished.stdout + finished.stderr
    assert not finished.timed_out, f"still running after {LIMIT_S:g} s\n{said}"
    assert finished.exit_status == 0, said
    return said


def hosts(fabric: emulated.EmulatedFabric, slots: str) -> str:
    return ",".join(f"{node.name}{slots}" for node in fabric.nodes)


def agent(scratch: Path) -> str:
    """enter.py as one word, which is what launchers want."""
    script = scratch / "enter"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} {HERE / "enter.py"} "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_open_mpi_over_ucx(fabric: emulated.EmulatedFabric, tmp_path: Path) -> None:
    folder = program("openmpi")
    argv = [
        str(folder / "mpirun"), "--allow-run-as-root", "--host", hosts(fabric, f":{RANKS // NODES}"), "-n", str(RANKS),
        "--oversubscribe", "--bind-to", "none", "--mca", "pml", "ucx", "--mca", "osc", "ucx",
        urxe().name, "run", "--", str(folder / "python"), str(HERE / "allreduce.py"),
    ]  # fmt: skip
    env = {
        **UCX,
        "PRTE_MCA_plm": "ssh",
        "PRTE_MCA_plm_ssh_agent": agent(tmp_path),
        "PRTE_MCA_prte_leave_session_attached": "1",
        "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
    }
    said = run(fabric, tmp_path, argv, env)
    assert f"{RANKS} ranks on {NODES} nodes: all data right" in said, said


@pytest.mark.parametrize(
    ("netmod", "env"),
    [
        ("ucx", UCX),
        ("ofi", {"FI_PROVIDER": "verbs;ofi_rxm", "FI_VERBS_IFACE": "eth0"}),
    ],
)
def test_mpich(fabric: emulated.EmulatedFabric, tmp_path: Path, netmod: str, env: Mapping[str, str]) -> None:
    folder = program("mpich")
    argv = [
        str(folder / "mpiexec.hydra"), "-launcher", "ssh", "-launcher-exec", agent(tmp_path),
        "-hosts", hosts(fabric, f":{RANKS // NODES}"), "-n", str(RANKS),
        urxe().name, "run", "--", str(folder / "python"), str(HERE / "allreduce.py"),
    ]  # fmt: skip
    env = {**env, "MPIR_CVAR_CH4_NETMOD": netmod}
    said = run(fabric, tmp_path, argv, env)
    assert f"{RANKS} ranks on {NODES} nodes: all data right" in said, said
