"""Fabrics of an ordinary user, in a user namespace. As root, the test becomes the user `nobody` for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyroute2
import pytest

import rocelab
from rocelab.fabric import emulated
from rocelab.fabric.tests.conftest import DIRECT
from rocelab.fabric.tests.test_emulated import PING, processes_naming

pytestmark = pytest.mark.fabric

NOBODY = 65534
#: env, because setpriv itself keeps root's right to read any folder until it has executed
#: something.
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs", "env")

USE_A_FABRIC = f"""
import os, sys
from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.launch.reception import Receptions, unavailable
assert os.getuid() == {NOBODY}, os.getuid()
links = [LinkProfile("direct", "direct"), LinkProfile("lan", "bridge", rate_mbps=100, loss_percent=0, ecn_percent=85)]
with emulated.up(links, name=sys.argv[1]) as fabric:
    launcher = NamespaceLauncher(fabric)
    for here, there in (fabric.nodes, fabric.nodes[::-1]):
        for address in [*there.addresses.values(), *there.addresses6.values()]:
            done = launcher.start(here, [sys.executable, "-c", {PING!r}, address]).wait(20)
            assert done.exit_status == 0, done.stderr
    server = launcher.start(fabric.nodes[1], [sys.executable, "-m", "http.server", "8000"])
    launcher.wait_until_listening(fabric.nodes[1], server, 8000)
    assert server.stop().cpu_s > 0
    assert fabric.dropped_packets("lan") == 0
    receptions = Receptions(fabric.nodes, launcher)
    assert receptions.choose("direct", "napi")["server_rx-gro"] == 1
    receptions.choose("direct", "usual")
    assert "needs CAP_NET_ADMIN" in unavailable("napi-deferred")
    look = ["sh", "-c", "uname -n; id -u; ls /sys/class/net; cat /etc/hostname"]
    print(launcher.start(fabric.nodes[0], look).wait(9).stdout)
"""


@pytest.fixture(scope="module")
def packages() -> Iterator[Path]:
    """Our package and the one library the fabric needs, where every user can read them."""
    with tempfile.TemporaryDirectory(prefix="rocelab-test-") as folder:
        for package in (rocelab, pyroute2):
            assert package.__file__ is not None
            source = Path(package.__file__).parent
            shutil.copytree(source, Path(folder) / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in [Path(folder), *Path(folder).rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield Path(folder)


def python_as_nobody(packages: Path, *argv: str, tool: Sequence[str] = AS_NOBODY) -> subprocess.CompletedProcess[str]:
    """Run an interpreter that `nobody` can read: this one, or the system's."""
    environment = {"PYTHONPATH": str(packages), "PATH": os.environ["PATH"], "HOME": "/", "PYTHONDONTWRITEBYTECODE": "1"}
    for interpreter in dict.fromkeys([sys.executable, "/usr/bin/python3"]):
        trial = [*tool, interpreter, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"]
        if subprocess.run(trial, cwd=packages, env=environment, capture_output=True, check=False).returncode == 0:
            return subprocess.run(
                [*tool, interpreter, *argv],
                cwd=packages,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
    pytest.skip("no Python 3.11 that an ordinary user can read (the one under test is in a private folder)")


@pytest.fixture
def become_nobody(can_emulate: None) -> None:
    if os.getuid() != 0:
        pytest.skip("not root, so every other test of fabrics is a test of this already")
    if shutil.which("setpriv") is None:
        pytest.skip("there is no setpriv (package util-linux) to become an ordinary user with")
    unshare = subprocess.run([*AS_NOBODY, "unshare", "-Urn", "true"], capture_output=True, text=True, check=False)
    if unshare.returncode != 0:
        pytest.skip(f"this machine gives ordinary users no user namespaces: {unshare.stderr.strip()}")


def test_an_ordinary_user_makes_a_fabric_and_runs_programs_on_it(become_nobody: None, packages: Path) -> None:
    name = f"nobody-{os.getpid()}"
    done = python_as_nobody(packages, "-c", USE_A_FABRIC, name)
    assert done.returncode == 0, done.stderr
    # Inside, the user is root, so that programs may use raw sockets; outside, `nobody`.
    assert done.stdout.split() == ["node0", "0", "eth0", "eth1", "lo", "node0"]
    assert processes_naming(name) == set()


def test_refused_user_namespaces_are_explained(become_nobody: None, packages: Path) -> None:
    # In a user namespace that may have no further ones, which is how it looks where they are
    # switched off.
    script = (
        "from pathlib import Path\n"
        "Path('/proc/sys/user/max_user_namespaces').write_text('0')\n"
        "from rocelab.fabric.keeper import kernel\n"
        "kernel.may_make_namespaces = lambda: False\n"
        "from rocelab.fabric.keeper import main\n"
        "try: main._enter_namespaces()\n"
        "except kernel.KernelError as error: print(error, '|', error.hint)\n"
    )
    tool = [*AS_NOBODY, "unshare", "-Ur"]
    done = python_as_nobody(packages, "-c", script, tool=tool)
    assert done.stdout.startswith("making a user namespace: No space left on device | "), done
    assert "/proc/sys/user/max_*_namespaces" in done.stdout


def test_another_users_fabric_is_not_ours_to_list_or_remove(become_nobody: None, packages: Path) -> None:
    with emulated.up([DIRECT]) as of_root:
        done = python_as_nobody(
            packages, "-c", "from rocelab.fabric import records; print([one.name for one in records.leftovers()])"
        )
        assert done.returncode == 0, done.stderr
        assert of_root.name not in done.stdout
