"""Holds what is no ratio to TCP against its bars: how fast connections are set up, and the memory of an idle one.

Usage: scripts/limits.py   (`make bench` runs it; urxe is found in PATH)

The program is cmtime of rdma-core, unmodified, both ends over loopback in a network namespace of their own. It makes so
many RDMA-CM connections at once, with a queue pair each, and tells how long each step took. The memory is that of all
that it has of a connection, its own and librdmacm's part included: what its peak grows by from 1,000 connections to
10,000.
"""

from __future__ import annotations

import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

FEW, MANY = 1_000, 10_000
REPETITIONS = 5
CONNECTIONS_PER_S_MIN = 2_000
MEMORY_KIB_MAX = 16.0
# Names ports, queue pairs and event files.
DESCRIPTORS_EACH, DESCRIPTORS_BESIDE = 1, 1_000
ADDRESS, PORT = "192.0.2.1", 7471
LISTENS = f"@urxe-cm/listen/0106/{PORT}/"
LIMIT_S = 60.0
# All that it takes to have a connection; the others end it.
STEPS = ("create id", "bind addr", "resolve addr", "resolve route", "create qp", "connect")
_LINE = re.compile(r"^(?P<step>[a-z ]+?)\s*:\s+(?P<ms>\d+(?:\.\d+)?)", re.MULTILINE)


class LimitsError(Exception):
    """It could not be measured."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One start of cmtime that connects."""

    setup_s: float
    peak_kib: int


def setup_s(report: str) -> float:
    """The time of all steps that set connections up."""
    ms = {found["step"]: float(found["ms"]) for found in _LINE.finditer(report)}
    missing = [step for step in STEPS if step not in ms]
    if missing:
        raise LimitsError(f"cmtime told no time of '{missing[0]}': {report.strip()[-200:]}")
    return sum(ms[step] for step in STEPS) / 1000


def lines(few: Sequence[Measured], many: Measured) -> list[str]:
    """Each limit beside its bar."""
    rates = [FEW / each.setup_s for each in few]
    rate, rate_of_many = statistics.median(rates), MANY / many.setup_s
    memory_kib = (many.peak_kib - statistics.median(each.peak_kib for each in few)) / (MANY - FEW)
    spread = f"{min(rates):,.0f}-{max(rates):,.0f}"
    fast = f"\u2265 {CONNECTIONS_PER_S_MIN:,}"
    small = f"\u2264 {MEMORY_KIB_MAX:g}"
    return [
        _line("RDMA-CM connections a second", f"{rate:,.0f}", spread, fast, rate >= CONNECTIONS_PER_S_MIN),
        _line(f"the same, {MANY:,} at once", f"{rate_of_many:,.0f}", "", fast, rate_of_many >= CONNECTIONS_PER_S_MIN),
        _line(f"KiB of a QP, {MANY:,} idle", f"{memory_kib:.1f}", "", small, memory_kib <= MEMORY_KIB_MAX),
    ]


def _line(what: str, value: str, spread: str, bar: str, is_met: bool) -> str:
    return f"{what:<29}{value:<7}{spread:<13}{bar:<9}{'met' if is_met else 'not met'}"


def measure(connections: int) -> Measured:
    """Starts both ends, in this namespace."""
    command = ["urxe", "run", "--", "cmtime", "-b", ADDRESS, "-p", str(PORT), "-c", str(connections)]
    with tempfile.TemporaryFile("w+") as said, subprocess.Popen(command, stdout=said, stderr=said) as server:
        try:
            _wait_until_listening(server, said)
            return _connect([*command, "-s", ADDRESS])
        finally:
            server.kill()


def _connect(command: Sequence[str]) -> Measured:
    with tempfile.TemporaryFile("w+") as said:
        client = subprocess.Popen(["timeout", str(LIMIT_S), *command], stdout=said, stderr=said)
        # Of all children that it waited for, so of cmtime.
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        report = said.read()
        if client.returncode != 0:
            raise LimitsError(f"cmtime ended with exit status {client.returncode}: {report.strip()[-200:]}")
        return Measured(setup_s(report), usage.ru_maxrss)


def _wait_until_listening(server: subprocess.Popen[bytes], said: IO[str]) -> None:
    end_s = time.monotonic() + LIMIT_S
    while LISTENS not in Path("/proc/net/unix").read_text():
        if server.poll() is not None or time.monotonic() > end_s:
            said.seek(0)
            raise LimitsError(f"cmtime does not listen: {said.read().strip()[-200:] or 'it said nothing'}")
        time.sleep(0.02)


def _main(arguments: Sequence[str]) -> int:
    if "--inside" not in arguments:
        # A network of its own: no address or port of this machine is touched.
        inside = [sys.executable, __file__, "--inside"]
        return subprocess.run(["unshare", "--map-root-user", "--net", *inside], check=False).returncode
    needed = MANY * DESCRIPTORS_EACH + DESCRIPTORS_BESIDE
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most != resource.RLIM_INFINITY and most < needed:
        print(
            f"scripts/limits.py: {MANY:,} connections need {needed:,} open files, and {most:,} are allowed (ulimit -Hn)"
        )
        return 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    for words in (["link", "set", "lo", "up"], ["address", "add", f"{ADDRESS}/32", "dev", "lo"]):
        subprocess.run(["ip", *words], check=True)
    try:
        few = [measure(FEW) for _ in range(REPETITIONS)]
        print("\n".join(lines(few, measure(MANY))))
    except (LimitsError, OSError) as error:
        print(f"scripts/limits.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
