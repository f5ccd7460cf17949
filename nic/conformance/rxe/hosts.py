"""Studies on the fabric `hosts`, over the kernel's devices: two guests, each with an sshd and an rxe device.

The kernel's device stands in for hardware: rocelab finds it and measures over it as over any.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocelab.cli.tests.test_own_programs import short as own_program
from rocelab.hosts.fabric import up
from rocelab.hosts.inventory import find
from rocelab.hosts.launcher import HostsLauncher
from rocelab.hosts.tests import cluster
from rocelab.launch import mpi
from rocelab.results import Sample, list_runs

from .guest import Guest
from .interop import wait_for
from .kernels import BUILT, ROOT

pytestmark = pytest.mark.timeout(1800)
LIMIT_S = 1500.0
#: The guests mount the file system of the host read-only: what has to be written is in memory.
_WRITABLE = """
mount -t tmpfs tmp /tmp
hostname {name} && cp /etc/hosts /tmp/hosts && echo '{hosts}' >>/tmp/hosts && mount --bind /tmp/hosts /etc/hosts
exec "$@"
"""
STUDY = """\
schema = 1
id = "guests"
title = "Two guests"
repetitions = 1
time_limit_s = 120

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "latency"
sizes_bytes = [64]
point_ms = 20

[test.variants]
soft-roce = ["send", "write", "read"]

[[test]]
test = "incast"
nodes = [2]
size_bytes = 65536
depth = 4
measured_s = 8
margin_s = 4

[test.variants]
soft-roce = ["write"]

[[test]]
level = "mpi"
test = "latency"
sizes_bytes = [8]
iterations = 20

[test.variants]
soft-roce = ["openmpi-ucx", "mpich-ucx"]
"""


@pytest.fixture(scope="module")
def hosts_toml(guest: Guest, second_guest: Guest) -> Iterator[Path]:
    """Both guests, reached by ssh."""
    if not cluster.UNPACKED.exists():
        pytest.skip("sshd is not unpacked: make setup-programs")
    # A guest's /tmp is its own.
    folder = BUILT / "hosts"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cluster.prepare(folder)
    guests = {f"guest{each.number}": each for each in (guest, second_guest)}
    ways = {name: {"HostName": each.address, "ConnectTimeout": "60"} for name, each in guests.items()}
    (folder / "ssh").write_text(cluster.client_config(folder, ways))
    names = "\n".join(f"{each.address} {name}" for name, each in guests.items())
    servers = [
        each.start(
            ["sh", "-c", _WRITABLE.format(name=name, hosts=names), "sh", *cluster.sshd(folder)],
            env=cluster.SSHD_ENV,
            limit_s=LIMIT_S + 300,
        )
        for name, each in guests.items()
    ]
    for each in guests.values():
        wait_for(functools.partial(answers, each.address), f"sshd of guest {each.number}")
    path = folder / "hosts.toml"
    path.write_text(f'hosts = "guest[1-2]"\nssh_options = ["-F", "{folder / "ssh"}"]\npython = "/usr/bin/python3"\n')
    yield path
    for server in servers:
        server.stop()


def answers(address: str) -> bool:
    """Whether an sshd listens there."""
    with contextlib.suppress(OSError), socket.create_connection((address, cluster.PORT), 1):
        return True
    return False


def rocelab(*words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rocelab", *map(str, words)]
    env = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)


def test_the_kernels_device_is_found(hosts_toml: Path) -> None:
    checked = rocelab("hosts", "check", hosts_toml)
    assert "for tcp and soft-roce and rxe on rxe0" in checked.stdout, checked.stdout + checked.stderr


def test_what_the_kernels_device_counts_is_read(hosts_toml: Path) -> None:
    with up(find(str(hosts_toml))) as hosts:
        found = HostsLauncher(hosts).network_counters(hosts.nodes[0], "eth0")
    assert "device.duplicate_request" in found, found


def test_network_and_mpi_are_measured_over_the_kernels_device(hosts_toml: Path, tmp_path: Path) -> None:
    if missing := [kind for kind in mpi.KINDS if not mpi.own(kind).mpiexec.exists()]:
        pytest.skip(f"there is no MPI to run: {', '.join(missing)}; make setup-programs")
    study = tmp_path / "guests.toml"
    study.write_text(STUDY)
    kept = ("--results", tmp_path / "results", "--no-report")
    done = rocelab("run", "--fabric", "hosts", "--hosts", hosts_toml, study, *kept)
    (store,) = list_runs(tmp_path / "results")
    samples: dict[tuple[str, str, str], list[Sample]] = defaultdict(list)
    for each in store.samples():
        samples[each.interconnect, each.test, each.variant].append(each)
    measured = {
        *(("latency", variant) for variant in ("send", "write", "read", "openmpi-ucx", "mpich-ucx")),
        ("incast", "write"),
    }
    assert set(samples) == {(name, *what) for name in ("soft-roce", "rxe") for what in measured}
    assert [each.error for of_one in samples.values() for each in of_one if not each.ok] == [], done.stderr


def test_an_own_program_is_copied_to_hosts_that_share_no_folder(hosts_toml: Path, tmp_path: Path) -> None:
    """The guests' /tmp is their own, so the program that is built here is not there."""
    if not mpi.own("mpich").mpiexec.exists():
        pytest.skip("there is no MPICH: make setup-programs")
    kept = ("--results", tmp_path / "results", "--no-report")
    words = ("run", "--fabric", "hosts", "--hosts", hosts_toml, own_program(tmp_path), *kept)
    lacking = rocelab(*words)
    assert "jacobi-mpich on guest[1-2]: --stage copies this machine's" in lacking.stderr
    done = rocelab(*words, "--stage")
    (store,) = list_runs(tmp_path / "results")
    assert [each.error for each in store.samples() if not each.ok] == [], done.stderr
    assert {each.interconnect for each in store.samples()} == {"tcp", "soft-roce", "rxe"}
