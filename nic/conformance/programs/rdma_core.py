"""Runs rdma-core's own tests, which scripts/setup_programs unpacks, each in a process of its own.

Usage: rdma_core.py FOLDER DEVICE [--report] [--limit SECONDS] [--without FILE] [MODULE...]

FOLDER is where the tests' package `tests` is, DEVICE the RDMA device to test, and a module is `test_qp` or the like:
without one, all those that are not about one vendor's hardware. One line for each test says what became of it. The exit
status is 0 if every test passed but those in EXPECTED_SKIPS, which skipped themselves. With --report it is always 0.
FILE has tests that are not for the device, and why (rdma_core_iwarp.toml): they are named and not run.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import multiprocessing
import os
import re
import signal
import sys
import tempfile
import time
import tomllib
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: Tests of what a urxe device does not have, and why. docs/verbs.md says more.
EXPECTED_SKIPS = {
    r"test_cuda_dmabuf\.|test_mr\.DmaBuf": "memory of a GPU",
    r"SharedDMTest|SharedPDTestCase": "objects of another process",
    r"test_flow\.|test_rss_traffic\.|_raw_qp_(ex_)?(no|with)_attr|test_query_raw_qp": "raw Ethernet packets",
    r"test_raw_qp_rate_limit": "raw Ethernet packets",
    r"test_tag_matching\.": "tag matching, an extension of one vendor",
    r"odp_rc_huge_|test_huge_page_traffic": "huge pages, which the machine need not have",
}
#: Which of them run where the machine has what they need.
DEPENDS_ON_THE_MACHINE = r"odp_rc_huge_|test_huge_page_traffic"


def main() -> None:
    """Run the tests that were asked for, and judge them."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", type=Path)
    options.add_argument("device")
    options.add_argument("modules", nargs="*")
    options.add_argument("--report", action="store_true")
    options.add_argument("--limit", type=float, default=30.0)
    options.add_argument("--without", type=Path)
    asked = options.parse_args()
    prepare(asked.folder, asked.device)
    # Some make files that they never remove.
    with tempfile.TemporaryDirectory() as temporary:
        os.environ["TMPDIR"] = tempfile.tempdir = temporary
        problems = run_all(asked)
    if problems:
        sys.exit(f"{problems} tests did not end as expected")
    print("all as expected")


def run_all(asked: argparse.Namespace) -> int:
    """Run the tests, with a line for each; how many of them did not end as expected."""
    problems = 0
    reasons = left_out(asked.without) if asked.without else {}
    for case in cases(asked.folder, asked.modules):
        name = case.id().removeprefix("tests.")
        if reason := next((why for pattern, why in reasons.items() if re.search(pattern, name)), None):
            print(f"{name}: left out: {reason}", flush=True)
            continue
        started_s = time.monotonic()
        outcome, details = run_apart(case, asked.limit)
        problem = "" if asked.report else unexpected(name, outcome)
        problems += bool(problem)
        print(f"{name}: {outcome} ({time.monotonic() - started_s:.1f} s){problem}", flush=True)
        if not outcome.startswith(("ok", "skipped")):
            print("    " + details.rstrip().replace("\n", "\n    "), flush=True)
    return problems


def left_out(file: Path) -> dict[str, str]:
    """The tests that a file leaves out, as regular expressions, and why."""
    groups = tomllib.loads(file.read_text(encoding="utf-8"))["left_out"]
    return {pattern: group["why"] for group in groups for pattern in group["tests"]}


def prepare(folder: Path, device: str) -> None:
    """Make the tests importable, and give them the device."""
    sys.path[:0] = [str(folder), str(folder / "tests")]
    # They hand themselves to processes that they start, which only a fork can do: Python 3.14 has
    # another default.
    multiprocessing.set_start_method("fork")
    sys.argv[1:] = ["--dev", device]
    if Path(f"/sys/class/infiniband/{device}/node_type").read_text(encoding="ascii").startswith("4"):
        # They look for a GID whose lower half is not 0. An iWARP device has none, and needs none.
        sys.argv += ["--port", "1", "--gid", "0"]
    importlib.import_module("args_parser").parser.parse_args()
    base = importlib.import_module("tests.base")

    def add_addresses(self: Any, dev: str, port: int, index: int | None) -> None:
        interface = Path(f"/sys/class/infiniband/{dev}/parent").read_text(encoding="ascii").strip()
        self.args.append([dev, port, index, *self.get_ip_mac_address(interface)])

    # They look for the network interface in a PCI device's folder, which Linux rxe has not; those
    # of RDMA-CM would be skipped for it. rxe names the interface in `parent`.
    if not Path(f"/sys/class/infiniband/{device}/device/net").is_dir():
        base.RDMATestCase._get_ip_mac = add_addresses  # noqa: SLF001


def cases(folder: Path, modules: list[str]) -> Iterator[unittest.TestCase]:
    """The tests of some modules, or of all."""
    vendors = ("test_mlx5", "test_efa")
    found = sorted(path.stem for path in (folder / "tests").glob("test_*.py") if not path.stem.startswith(vendors))
    for name in modules or found:
        yield from flat(unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(f"tests.{name}")))


def flat(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """The tests of a suite and of those within it."""
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from flat(each)
        elif isinstance(each, unittest.TestCase):
            yield each


def run_apart(case: unittest.TestCase, limit_s: float) -> tuple[str, str]:
    """Run one test in a child; how it ended, and what it printed about that. Whatever it started is killed."""
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        os.close(readable)
        os.write(writable, json.dumps(outcome_of(case)).encode())
        os._exit(0)
    os.close(writable)
    deadline_s = time.monotonic() + limit_s
    # Not until the pipe closes: what the test started may hold it, too.
    while not (ended := os.waitpid(child, os.WNOHANG))[0] and time.monotonic() < deadline_s:
        time.sleep(0.005)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    try:
        if not ended[0]:
            os.waitpid(child, 0)
            return f"still running after {limit_s:g} s", ""
        if ended[1]:
            return f"ended with status {ended[1]:#x}", ""
        outcome, details = json.loads(os.read(readable, 1 << 16))
        return outcome, details
    finally:
        os.close(readable)


def outcome_of(case: unittest.TestCase) -> tuple[str, str]:
    """Run a test, in this process."""
    result = unittest.TestResult()
    case.run(result)
    for word, found in (("failed", result.failures), ("error", result.errors)):
        for _, trace in found:
            return f"{word}: {trace.strip().splitlines()[-1]}", trace[-8000:]
    for _, reason in result.skipped:
        return f"skipped: {' '.join(reason.split())}", ""
    return "ok", ""


def unexpected(name: str, outcome: str) -> str:
    """What is wrong with an outcome, as text to go behind it; nothing if it is as it should be."""
    may_skip = any(re.search(pattern, name) for pattern in EXPECTED_SKIPS)
    if outcome == "ok" and may_skip and not re.search(DEPENDS_ON_THE_MACHINE, name):
        return "  <- EXPECTED_SKIPS has it, but it works: take it out there"
    if outcome == "ok" or (may_skip and outcome.startswith("skipped")):
        return ""
    return "  <- should be ok"


if __name__ == "__main__":
    main()
