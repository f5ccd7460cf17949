"""Hosts for tests: nodes of an emulated fabric with real sshd, and rocelab as it is called on the first of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.cli.tests.on_hosts import LINK, ROCELAB, STUDY, Run
from rocelab.fabric.base import FabricError, Finished
from rocelab.hosts.tests.cluster import UNPACKED, SshCluster, ssh_cluster
from rocelab.tools import sock


@pytest.fixture(scope="session")
def can_run() -> None:
    if os.getuid() != 0:
        pytest.skip("sshd and Slurm need root")
    if not UNPACKED.exists():
        pytest.skip("sshd and Slurm are not unpacked: make setup-programs")
    if sock.program().path is None:
        pytest.skip("rocelab-sock is not built: make -C bench")


@pytest.fixture(scope="module")
def cluster(can_run: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshCluster]:
    try:
        with ssh_cluster(tmp_path_factory.mktemp("cluster"), [LINK], 3) as made:
            yield made
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


@pytest.fixture
def rocelab(cluster: SshCluster) -> Run:
    def run(*words: str | Path) -> Finished:
        env = {"COLUMNS": "100"}
        return cluster.launcher.start(cluster.fabric.nodes[0], [*ROCELAB, *map(str, words)], env=env).wait(240)

    return run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY)
    return path
