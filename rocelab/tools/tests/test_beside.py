"""Other work beside a measured program, and conditions that a program is measured under."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from rocelab import peers
from rocelab.tools.base import Executable, Request
from rocelab.tools.beside import Busy, beside
from rocelab.tools.interconnects import interconnect
from rocelab.tools.perftest import Perftest
from rocelab.tools.sock import Sock

REQUEST = Request(64, 100, "10.80.0.2", "eth0", "eth1", 18000)
COUNT = "import time\nend = time.monotonic() + 0.5\nwhile time.monotonic() < end: pass\nprint(time.process_time())"


def test_the_other_process_has_a_part_of_the_core_and_ends_with_the_measured_one() -> None:
    command = Busy(Sock("latency", "blocking")).client(REQUEST)
    compute = next(line for line in command[2].splitlines() if line.startswith("while"))
    script = beside(compute.split(" </dev/null")[0], [sys.executable, "-c", COUNT])
    core = str(min(os.sched_getaffinity(0)))
    done = subprocess.run(["taskset", "-c", core, *script], capture_output=True, text=True, check=True, timeout=60)
    assert float(done.stdout) < 0.4, "of half a second"


def test_the_status_of_the_measured_program_counts() -> None:
    done = subprocess.run(beside("sleep 100", ["sh", "-c", "exit 7"]), check=False, timeout=60)
    assert done.returncode == 7


def test_what_both_cost_is_not_told_apart() -> None:
    tests = {test for test, variant in interconnect("soft-roce").methods if variant.endswith("-busy")}
    assert tests == {"latency", "bandwidth", "bidirectional-bandwidth"}


def test_a_program_without_the_capability_cannot_get_it_back() -> None:
    method = Perftest("write", "bandwidth", Executable("urxe"), without_net_raw=True)
    assert "setpriv" in [each.name for each in method.executables]
    command = list(method.client(REQUEST))
    prefix = command[: command.index("urxe")]
    assert prefix
    said = subprocess.run([*prefix, "cat", "/proc/self/status"], capture_output=True, text=True, check=False)
    if said.returncode != 0:
        pytest.skip(f"no capability can be given up here: {said.stderr.strip()}")
    found = dict(line.split(":\t", 1) for line in said.stdout.splitlines() if line.startswith("Cap"))
    assert not int(found["CapEff"], 16) & 1 << 13
    assert not int(found["CapBnd"], 16) & 1 << 13


def test_a_condition_is_part_of_the_name_and_of_the_words() -> None:
    assert peers.plain_name("busy-poll-busy") == ("busy-poll", "beside other work")
    assert peers.plain_name("busy-poll") == ("busy-poll", None)
    assert peers.plain_name("openmpi-ucx-roce-v1") == ("openmpi-ucx", "over RoCE v1")
    assert peers.title("busy-poll-busy@cubic") == "TCP busy-polling, beside other work, cubic"
    assert peers.reception_of("kernel-prefer-busy@cubic") == peers.reception_of("kernel-prefer")
    assert not peers.references("network", ["blocking-busy@cubic"])
