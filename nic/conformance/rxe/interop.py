"""urxe against the software RoCE device of Linux, over a wire: `make interop`. Too long for `make test`.

Each program runs both ways: with its server on urxe and its client on the kernel's device, then the other way round.
The tests of rdma-core run on both, and whatever passes on the kernel's device has to pass on urxe.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from .guest import (
    BUILT,
    GUEST_ADDRESS,
    GUEST_DEVICE,
    HOST_ADDRESS,
    HOST_DEVICE,
    ROOT,
    TAP,
    Guest,
    GuestError,
    booted,
    in_its_own_namespace,
)

LIMIT_S = 60.0
READY_S = 40.0
#: From a program's first use of RDMA-CM in the guest until it listens, and how often to try, as that may take longer. A
#: server whose client has connected does not wait for another one, so that no failure is hidden.
CM_PAUSE_S = 2.0
CM_ATTEMPTS = 3
#: A socket of urxe's for those who listen with RDMA-CM.
URXE_LISTENS = "@urxe-cm/listen/"
PYVERBS = ROOT / ".build" / "programs" / "pyverbs" / "usr" / "lib" / "python3" / "dist-packages"
RDMA_CORE = ROOT / ".build" / "programs" / "rdma-core"
RDMA_CORE_TESTS = ROOT / "nic" / "conformance" / "programs" / "rdma_core.py"


@dataclass(frozen=True, slots=True)
class Side:
    """How an end names its device and itself."""

    device: str
    gid: str
    address: str


URXE = Side(HOST_DEVICE, "0", HOST_ADDRESS)
#: The first entry of a kernel's table is the link-local IPv6 address.
RXE = Side(GUEST_DEVICE, "1", GUEST_ADDRESS)

PINGPONG = "{program} -d {device} -g {gid} {options}"
PERFTEST = "{program} -d {device} -x {gid} -F {options}"
PLAIN = "{program} {options}"
#: How a program is started, with what, and the port that its server has; none: it listens with RDMA-CM.
RUNS: list[tuple[str, str, int | None]] = [
    (PINGPONG, "ibv_rc_pingpong -c -n 200", 18515),
    (PINGPONG, "ibv_rc_pingpong -c -n 200 -e", 18515),
    (PINGPONG, "ibv_uc_pingpong -c -n 100", 18515),
    (PINGPONG, "ibv_ud_pingpong -c -n 100 -s 1000", 18515),
    (PINGPONG, "ibv_srq_pingpong -c -n 100", 18515),
    (PERFTEST, "ib_send_bw -n 300", 18515),
    (PERFTEST, "ib_send_lat -n 50 -s 100000", 18515),
    (PERFTEST, "ib_send_bw -c UD -n 100 -s 1024", 18515),
    (PERFTEST, "ib_send_bw --use-srq -q 4 -n 100 -s 4096", 18515),
    (PERFTEST, "ib_write_bw -n 300", 18515),
    (PERFTEST, "ib_write_bw -q 16 -n 50 -s 8192", 18515),
    (PERFTEST, "ib_write_bw -c UC -n 100 -s 4096", 18515),
    (PERFTEST, "ib_write_lat -I 64 -n 100 -s 32", 18515),
    (PERFTEST, "ib_read_bw -n 300", 18515),
    (PERFTEST, "ib_atomic_bw -A FETCH_AND_ADD -n 200", 18515),
    (PERFTEST, "ib_atomic_lat -A CMP_AND_SWAP -n 100", 18515),
    (PERFTEST, "ib_send_bw -R -n 100", None),
    (PERFTEST, "ib_send_bw -R -c UD -n 100 -s 1024", None),
    ("{program} -s {options}|{program} -c -a {server} {options}", "rping -C 20 -v -V", None),
    (PLAIN + "|{program} -s {server} {options}", "ucmatose -c 4 -C 20 -S 5000", None),
    (PLAIN + "|{program} -s {server} {options}", "udaddy -C 20", None),
    (PLAIN + "|{program} -s {server} {options}", "rstream -S 4096 -C 50", None),
    (PLAIN + "|{program} -s {server} {options}", "rstream -T b -S 4096 -C 50", None),
    (PLAIN + "|{program} -s {server} {options}", "riostream -S 4096 -C 50", None),
    (PLAIN + "|{program} -s {server} {options}", "rdma_server|rdma_client", None),
]


@pytest.fixture(scope="module")
def guest() -> Iterator[Guest]:
    if not in_its_own_namespace():
        pytest.skip("this needs a network namespace of its own: `make interop`")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    try:
        with booted() as running:
            print(f"Linux {running.kernel} with rxe")
            yield running
    except GuestError as error:
        pytest.skip(f"no guest with Linux rxe: {error}")


def command_lines(form: str, run: str, here: Side, there: Side) -> tuple[list[str], list[str]]:
    """The server's and the client's, with the server on `here`."""
    programs, _, options = run.partition(" ")
    server_form, _, client_form = form.partition("|")
    server, _, client = programs.partition("|")

    def line(text: str, program: str, side: Side) -> list[str]:
        words = {"program": program, "options": options, "device": side.device, "gid": side.gid, "server": here.address}
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], text).split()

    return line(server_form, server, here), line(client_form or form + " {server}", client or server, there)


def on_urxe(argv: list[str]) -> list[str]:
    return ["urxe", "run", "--", *argv]


def wait_for(is_ready: object, what: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while not is_ready():  # type: ignore[operator]
        assert time.monotonic() < deadline_s, f"{what} did not listen within {READY_S:g} s"
        time.sleep(0.1)


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("form", "run", "port"), RUNS, ids=[run for _, run, _ in RUNS])
def test_server_on_urxe(guest: Guest, form: str, run: str, port: int | None) -> None:
    server, client = command_lines(form, run, URXE, RXE)

    def is_ready() -> bool:
        if port is None:
            return URXE_LISTENS in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        return bool(subprocess.run(["ss", "-Htln", f"sport = :{port}"], capture_output=True, check=True).stdout)

    serving = subprocess.Popen(on_urxe(server), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_for(is_ready, run)
        finished = guest.run(client, limit_s=LIMIT_S)
        said = serving.communicate(timeout=LIMIT_S if finished.status == 0 else 1)[0]
    finally:
        serving.kill()
        serving.wait()
    assert finished.status == 0, f"client on rxe: {finished.output}"
    assert serving.returncode == 0, f"server on urxe: {said}"


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("form", "run", "port"), RUNS, ids=[run for _, run, _ in RUNS])
def test_client_on_urxe(guest: Guest, form: str, run: str, port: int | None) -> None:
    server, client = command_lines(form, run, RXE, URXE)
    serving = guest.start(server, limit_s=LIMIT_S)
    try:
        if port:
            asking = ["ss", "-Htln", f"sport = :{port}"]
            wait_for(lambda: "LISTEN" in guest.run(asking).output, run)
        else:
            # The kernel does not show who listens on all addresses: only that somebody has begun to use RDMA-CM.
            wait_for(lambda: "infiniband/rdma_cm" in guest.run(["sh", "-c", "ls -l /proc/[0-9]*/fd"]).output, run)
        for _ in range(1 if port else CM_ATTEMPTS):
            time.sleep(0 if port else CM_PAUSE_S)
            ended = subprocess.run(
                on_urxe(client),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
            if ended.returncode == 0:
                break
        served = serving.wait()
    finally:
        serving.stop()
    assert ended.returncode == 0, f"client on urxe: {ended.stdout}"
    assert served.status == 0, f"server on rxe: {served.output}"


def outcomes(report: str) -> Mapping[str, str]:
    """What became of each of rdma-core's tests."""
    return dict(re.findall(r"^(test_\S+): (\w+)", report, re.MULTILINE))


@pytest.mark.timeout(1200)
def test_what_passes_on_rxe_passes_on_urxe(guest: Guest) -> None:
    if not RDMA_CORE.exists():
        pytest.skip("there are no tests of rdma-core; `make setup-programs` fetches them")
    env = {"PYTHONPATH": str(PYVERBS)}
    line = ["/usr/bin/python3", str(RDMA_CORE_TESTS), str(RDMA_CORE)]
    on_rxe = guest.run([*line, GUEST_DEVICE, "--report", "--limit", "60"], env=env, limit_s=1100).output
    ours = subprocess.run(
        on_urxe([*line, HOST_DEVICE, "--report"]), env={**os.environ, **env}, capture_output=True, text=True, check=True
    ).stdout
    (BUILT / "rdma-core-on-rxe.txt").write_text(on_rxe)
    (BUILT / "rdma-core-on-urxe.txt").write_text(ours)
    theirs, found = outcomes(on_rxe), outcomes(ours)
    assert "ok" in theirs.values(), on_rxe
    worse = [name for name, outcome in theirs.items() if outcome == "ok" and found.get(name) != "ok"]
    assert not worse, f"pass on Linux rxe, but not on {HOST_DEVICE} ({TAP}): {', '.join(worse)}\n{ours}"
