"""Copies of programs and files on hosts that lack them, over real sshd."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.hosts import programs
from rocelab.hosts.fabric import up
from rocelab.hosts.inventory import find
from rocelab.hosts.launcher import HostsLauncher
from rocelab.hosts.tests.cluster import UNPACKED, SshCluster, ssh_cluster

pytestmark = pytest.mark.fabric


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SshCluster]:
    if os.getuid() != 0:
        pytest.skip("sshd needs root")
    if not UNPACKED.exists():
        pytest.skip("sshd is not unpacked: make setup-programs")
    (tmp_path / "cluster").mkdir()
    try:
        with ssh_cluster(tmp_path / "cluster", [LinkProfile("b", "bridge")], 2) as made:
            yield made
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")


def test_files_of_one_name_are_kept_apart(cluster: SshCluster, tmp_path: Path) -> None:
    wanted = []
    for folder in ("one", "other"):
        path = tmp_path / folder / "words"
        path.parent.mkdir()
        path.write_text(f"{folder}\n")
        wanted.append(str(path))
    assert all(programs.can_be_staged(each) for each in wanted)
    with up(find(str(cluster.hosts_toml()))) as hosts:
        node = hosts.nodes[0]
        places: programs.Places = {each.name: {} for each in hosts.nodes}
        programs.stage(hosts, places, wanted)
        argv = ["cat", *(places[node.name][each] for each in wanted)]
        assert HostsLauncher(hosts).start(node, argv).wait(30).stdout == "one\nother\n"
