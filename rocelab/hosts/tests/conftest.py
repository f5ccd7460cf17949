"""Hosts with sshd, made once for the tests of a module."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.hosts.tests.cluster import UNPACKED, SshCluster, ssh_cluster

LINKS = [LinkProfile("first", "bridge"), LinkProfile("second", "bridge", mtu_bytes=9000, rate_mbps=1000)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SshCluster]:
    """Four hosts with two rails, of which the second is a shaped one."""
    if os.getuid() != 0:
        pytest.skip("sshd needs root to let anyone in")
    if not UNPACKED.exists():
        pytest.skip("sshd is not unpacked: make setup-programs")
    try:
        with ssh_cluster(tmp_path_factory.mktemp("cluster"), LINKS, 4) as made:
            yield made
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
