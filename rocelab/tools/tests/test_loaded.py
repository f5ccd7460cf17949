"""Latency under load: what the two programs of an end have to do with each other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rocelab.tools.base import Request
from rocelab.tools.loaded import Loaded, both_of_an_end
from rocelab.tools.sock import Sock

LOADED = Loaded(Sock("latency", "blocking"), Sock("bandwidth", "blocking"))
REQUEST = Request(64, 100, "10.80.0.2", "eth0", "eth1", 18000)


def run(load: list[str], measured: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(both_of_an_end(load, measured), capture_output=True, text=True, check=False, timeout=20)


def test_the_stream_ends_with_the_measured_program_whose_output_and_status_count(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    load = ["sh", "-c", f"echo noise; trap 'touch {mark}; exit' TERM; while :; do sleep 0.02; done"]
    done = run(load, ["sh", "-c", "echo numbers; exit 3"])
    assert (done.returncode, done.stdout, done.stderr) == (3, "numbers\n", "")
    assert mark.exists()


def test_a_stream_that_ended_before_is_an_error() -> None:
    done = run(["true"], ["echo", "numbers"])
    assert done.returncode == 1
    assert "the stream that was to load the link had ended" in done.stderr
    # What the measured program died of says more.
    done = run(["true"], ["sh", "-c", "echo reason >&2; exit 4"])
    assert (done.returncode, done.stderr) == (4, "reason\n")


@pytest.mark.parametrize("end", ["server", "client"])
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
