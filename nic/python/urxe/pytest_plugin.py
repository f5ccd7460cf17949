"""pytest with an RDMA device: the option ``--rdma``, and the fixture `rdma_nodes`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pytest

import urxe

#: How long a program may take, unless a test says otherwise, in seconds.
_LIMIT_S = 60.0
#: Set for the pytest that ``--rdma`` starts, which finds no device only if something is wrong.
_STARTED = "URXE_PYTEST_STARTED"

Word: TypeAlias = "str | int | os.PathLike[str]"


def pytest_addoption(parser: pytest.Parser) -> None:
    """See pytest."""
    group = parser.getgroup("urxe", "RDMA in software (urxe)")
    group.addoption(
        "--rdma", action="store_true", help="run all tests with an RDMA device for each network interface (urxe run)"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Starts pytest again with the device, before anything of it has begun: a library is preloaded only then."""
    if not early_config.known_args_namespace.rdma or urxe.is_loaded():
        return
    if os.environ.get(_STARTED):
        raise pytest.UsageError(
            "--rdma: `urxe run` has started pytest, and liburxe.so is not in LD_PRELOAD: something has removed it"
        )
    try:
        command = urxe.command()
    except urxe.NoUrxeError as error:
        raise pytest.UsageError(f"--rdma: {error}") from None
    # pytest has the output elsewhere already.
    capture = early_config.pluginmanager.getplugin("capturemanager")
    if capture is not None:
        capture.suspend_global_capture(in_=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os.environ[_STARTED] = "1"
    os.execv(command, [command, "run", "--", *sys.orig_argv])  # noqa: S606, the command line as it was, with the device before it


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Says which device the tests have."""
    return [f"rdma: urxe, {os.environ['LD_PRELOAD']}"] if config.getoption("rdma") else []


@dataclass(frozen=True)
class Node:
    """One of two ends: where the programs of a server, or of its client, run."""

    device: str
    """Its RDMA device, as verbs programs name it."""
    interface: str
    """The network interface that the device is of."""
    address: str
    """The IPv4 address by which the other end reaches it."""
    gid_index: int
    """The index of the GID that has this address."""
    _started: list[subprocess.Popen[str]] = field(default_factory=list, repr=False, compare=False)

    def start(self, *command: Word, **options: Any) -> subprocess.Popen[str]:
        """Start a program with the device. It ends with the test. Options are those of subprocess.Popen."""
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        process: subprocess.Popen[str] = subprocess.Popen(_with_device(command), **given)
        self._started.append(process)
        return process

    def run(
        self, *command: Word, timeout_s: float = _LIMIT_S, check: bool = True, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a program with the device until it ends.

        Raises subprocess.CalledProcessError if it fails and `check` is true, subprocess.TimeoutExpired if it takes too
        long. What it printed is in both.
        """
        given = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
        return subprocess.run(_with_device(command), timeout=timeout_s, check=check, **given)

    def end(self) -> None:
        """End what was started and runs yet."""
        for process in self._started:
            with process:
                process.kill()
        self._started.clear()


@pytest.fixture
def rdma_nodes() -> Iterator[tuple[Node, Node]]:
    """Two ends, for a server and a client: processes of their own that reach each other over the loopback interface."""
    try:
        device = _loopback()
    except urxe.NoUrxeError as error:
        pytest.fail(str(error), pytrace=False)
    nodes = Node(**device), Node(**device)
    yield nodes
    for node in nodes:
        node.end()


def _with_device(command: tuple[Word, ...]) -> list[str]:
    words = [str(word) for word in command]
    return words if urxe.is_loaded() else [urxe.command(), "run", "--", *words]


def _loopback() -> dict[str, Any]:
    """The device of the loopback interface, as a Node has it."""
    listed = subprocess.run([urxe.command(), "devices", "--json"], check=True, capture_output=True, text=True)
    for device in json.loads(listed.stdout):
        for gid in device["gids"]:
            if gid["address"].startswith("127."):
                return {
                    "device": device["device"],
                    "interface": device["interface"],
                    "address": gid["address"],
                    "gid_index": gid["index"],
                }
    raise urxe.NoUrxeError(f"no device has an address of 127.0.0.0/8: {listed.stdout}")
