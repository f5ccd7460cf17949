"""Latency under load: what the two programs of an end have to do with each other."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from rocelab.tools.base import Request
from rocelab.tools.loaded import Loaded
from rocelab.tools.sock import Sock

LOADED = Loaded(Sock("latency", "blocking"), load=Sock("bandwidth", "blocking"))
REQUEST = Request(64, 100, "10.80.0.2", "eth0", "eth1", 18000)
ENDS = ("server", "client")


@dataclass(frozen=True)
class Made(Sock):
    """Programs made up for both ends."""

    argv: tuple[str, ...] = ()

    def server(self, request: Request) -> Sequence[str]:
        return self.argv

    def client(self, request: Request) -> Sequence[str]:
        return self.argv


def run(end: str, load: str, measured: str) -> subprocess.CompletedProcess[str]:
    of_end, stream = (Made("latency", "blocking", argv=("sh", "-c", script)) for script in (measured, load))
    command = getattr(Loaded(of_end, load=stream), end)(REQUEST)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)


@pytest.mark.parametrize("end", ENDS)
def test_the_stream_ends_with_the_program_whose_output_counts(end: str, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    load = f"echo noise; trap 'touch {mark}; exit' TERM; while :; do sleep 0.02; done"
    done = run(end, load, "echo numbers; exit 3")
    assert (done.returncode, done.stdout, done.stderr) == (3, "numbers\n", "")
    assert mark.exists()


def test_a_stream_that_ended_before_is_an_error_of_the_client() -> None:
    done = run("client", "true", "echo numbers")
    assert done.returncode == 1
    assert "the stream that was to load the link had ended" in done.stderr
    # What the measured program died of says more.
    done = run("client", "true", "echo reason >&2; exit 4")
    assert (done.returncode, done.stderr) == (4, "reason\n")
    # The server's may end because the client ended its own.
    assert run("server", "true", "true").returncode == 0


@pytest.mark.parametrize("end", ENDS)
def test_the_stream_has_a_port_of_its_own_and_no_end(end: str) -> None:
    command = getattr(LOADED, end)(REQUEST)
    assert command[:2] == ["sh", "-c"]
    load, measured = (line for line in command[2].splitlines() if "rocelab-sock" in line)
    assert "--port 22000" in load
    assert "--port 18000" in measured
    if end == "client":
        assert "--test bandwidth" in load
        assert "--messages 1000000" in load
        assert "--messages 100 " in measured


def test_what_is_read_is_the_measured_programs() -> None:
    assert LOADED.tool == "rocelab-sock"
    assert LOADED.server_ends
    assert LOADED.overhead_s > 1
