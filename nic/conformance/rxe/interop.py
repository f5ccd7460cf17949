"""urxe against the software RoCE device of Linux, over a wire: `make interop`. test_brief.py runs a few of it.

Each program of `runs.py` runs both ways: with its server on urxe and its client on the kernel's device, then the other
way round; and many of them once more with loss. The tests of rdma-core run on both, and whatever passes on the kernel's
device has to pass on urxe.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .guest import (
    GUEST_DEVICE,
    GUEST_INTERFACE,
    HERE,
    HOST_ADDRESS,
    HOST_ADDRESS6,
    HOST_DEVICE,
    LINK_MTU_BYTES,
    Guest,
)
from .kernels import BUILT, ROOT
from .runs import RUNS, Run, Side, command_lines, documented, table

#: Many times as long as any takes, as a guest's processors may be emulated, and its host may be
#: busy.
LIMIT_S = 120.0
READY_S = 120.0
#: A socket of urxe's for programs that listen with RDMA-CM.
URXE_LISTENS = "@urxe-cm/listen/"
PYVERBS = ROOT / ".build" / "programs" / "pyverbs" / "usr" / "lib" / "python3" / "dist-packages"
#: Where programs find pyverbs, and those of this package each other.
ENV = {"PYTHONPATH": f"{PYVERBS}:{HERE.parent}"}
RDMA_CORE = ROOT / ".build" / "programs" / "rdma-core"
RDMA_CORE_TESTS = ROOT / "nic" / "conformance" / "programs" / "rdma_core.py"
#: What is lost in the guest, of UDP datagrams in each direction.
LOSS = "1%"
#: Of so many datagrams all arrive once in 3,000 times.
LOSS_SHOWS_IN = 800
WITH_LOSS = [run for run in RUNS if run.with_loss]


def each(runs: Sequence[Run]) -> pytest.MarkDecorator:
    """A test runs with each of them."""
    brief = [pytest.mark.brief]
    return pytest.mark.parametrize("run", [pytest.param(run, id=run.id, marks=brief * run.is_brief) for run in runs])


BOTH_WAYS = each(RUNS)
BOTH_WAYS_WITH_LOSS = each(WITH_LOSS)

pytestmark = pytest.mark.timeout(600)
#: What became of each run, by its name and its column in the table.
OUTCOMES: dict[tuple[str, str], bool] = {}
#: What operations.py says when a refusal was lost. The end that refused is in error then, and
#: answers no more.
REFUSAL_LOST = "the refusal did not arrive"
#: What the pingpongs say when no peer answers.
GIVEN_UP = "transport retry counter exceeded"
#: What perftest says when no program listens: of its first and of its second connection.
REFUSED = ("Unexpected CM event bl blka 8", "RDMA_CM_EVENT_REJECTED")
#: It makes a client about as slow as the server on an emulated processor, which then is refused
#: less often.
SLOWLY = ("valgrind", "--quiet")
#: How often a program runs that has trouble of its own, and how often which did.
ATTEMPTS = 12
AGAIN: Counter[str] = Counter()


@pytest.fixture(scope="module")
def urxe() -> Side:
    """The end on the host."""
    return side_on_urxe()


@pytest.fixture(scope="module")
def rxe(guest: Guest) -> Side:
    """The end in the guest."""
    return side_on_rxe(guest)


@pytest.fixture(scope="class")
def loss(guest: Guest) -> Iterator[None]:
    """Datagrams are lost in the guest, those that it sends and those that it receives."""
    tc = f"tc {{}} dev {GUEST_INTERFACE}"
    into, out = "match ip protocol 17 0xff", "parent 1:3 handle 30: netem loss"
    add = [
        f"{tc.format('qdisc add')} root handle 1: prio priomap {'0 ' * 16}",
        f"{tc.format('qdisc add')} {out} {LOSS}",
        f"{tc.format('filter add')} parent 1: protocol ip u32 {into} flowid 1:3",
        f"ip link set ifb0 mtu {LINK_MTU_BYTES} up",
        f"tc qdisc add dev ifb0 root netem loss {LOSS}",
        f"{tc.format('qdisc add')} ingress",
        f"{tc.format('filter add')} parent ffff: protocol ip u32 {into} action mirred egress redirect dev ifb0",
    ]
    guest.shell(*add)
    yield
    remove = f"tc qdisc del dev {GUEST_INTERFACE} root && tc qdisc del dev {GUEST_INTERFACE} ingress"
    # Otherwise what follows would lose packets, too.
    counted = guest.shell("tc -s qdisc show", remove)
    counts = re.findall(r"netem .*\n.* (\d+) pkt \(dropped (\d+)", counted)
    assert len(counts) == 2, counted
    passed, lost = ([int(count) for count in column] for column in zip(*counts, strict=True))
    assert min(passed) > 0, counted
    seen = [*zip(passed, lost, strict=True), (sum(passed), sum(lost))]
    assert all(dropped > 0 for arrived, dropped in seen if arrived > LOSS_SHOWS_IN), counted


def side_on_urxe() -> Side:
    gid, gid6 = gid_indices(on_urxe, HOST_DEVICE, HOST_ADDRESS6)
    return Side(HOST_DEVICE, gid, gid6, HOST_ADDRESS, HOST_ADDRESS6)


def side_on_rxe(guest: Guest) -> Side:
    found = guest.run(gid_reader(GUEST_DEVICE)).output
    return Side(GUEST_DEVICE, *indices(found, guest.address6), guest.address, guest.address6)


def gid_reader(device: str) -> list[str]:
    """Prints a GID table."""
    return ["sh", "-c", f"for index in 0 1 2 3; do cat /sys/class/infiniband/{device}/ports/1/gids/$index; done"]


def gid_indices(run: Callable[[list[str]], list[str]], device: str, address6: str) -> tuple[str, str]:
    """The indices of a device's IPv4 address and of this IPv6 address."""
    shown = subprocess.run(run(gid_reader(device)), capture_output=True, text=True, check=True).stdout
    return indices(shown, address6)


def indices(shown: str, address6: str) -> tuple[str, str]:
    gids = shown.splitlines()
    ipv4 = next(index for index, gid in enumerate(gids) if gid.startswith("0000:0000:0000:0000:0000:ffff:"))
    prefix, _, host = address6.partition("::")
    ipv6 = next(i for i, gid in enumerate(gids) if gid.startswith(prefix) and gid.endswith(f":{int(host, 16):04x}"))
    return str(ipv4), str(ipv6)


def on_urxe(argv: list[str]) -> list[str]:
    return ["urxe", "run", "--", *argv]


def is_listening(port: str) -> bool:
    """Whether a program on the host listens on this TCP port."""
    return bool(subprocess.run(["ss", "-Htln", f"sport = :{port}"], capture_output=True, check=True).stdout)


def wait_for(is_ready: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while not is_ready():
        assert time.monotonic() < deadline_s, f"{what} did not listen within {READY_S:g} s"
        time.sleep(0.1)


@BOTH_WAYS
def test_server_on_urxe(guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
    with noted(run, "server"):
        attempt(server_on_urxe, guest, run, *command_lines(run, urxe, rxe))


@BOTH_WAYS
def test_client_on_urxe(guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
    with noted(run, "client"):
        attempt(client_on_urxe, guest, run, *command_lines(run, rxe, urxe))


@pytest.mark.usefixtures("loss")
class TestWithLoss:
    """What follows the class has a network without loss again."""

    @BOTH_WAYS_WITH_LOSS
    def test_server_on_urxe(self, guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
        """One way, ..."""
        with noted(run, "server, loss"):
            attempt(server_on_urxe, guest, run, *command_lines(run, urxe, rxe), with_loss=True)

    @BOTH_WAYS_WITH_LOSS
    def test_client_on_urxe(self, guest: Guest, urxe: Side, rxe: Side, run: Run) -> None:
        """... and the other."""
        with noted(run, "client, loss"):
            attempt(client_on_urxe, guest, run, *command_lines(run, rxe, urxe), with_loss=True)


def attempt(
    both: Callable[[Guest, Run, list[str], list[str]], None],
    guest: Guest,
    run: Run,
    *lines: list[str],
    with_loss: bool = False,
) -> None:
    """Run both ends; again where what failed is known to be the program's own trouble, and says so."""
    for left in reversed(range(ATTEMPTS)):
        try:
            both(guest, run, *lines)
            break
        except AssertionError as failed:
            if left == 0 or not is_its_own(run, str(failed), with_loss=with_loss):
                raise
            AGAIN[run.id] += 1


def is_its_own(run: Run, said: str, *, with_loss: bool) -> bool:
    """Whether a run failed because of what the program is known to do."""
    was_refused = run.may_be_refused and any(refusal in said for refusal in REFUSED)
    return was_refused or (run.may_miss_the_end and GIVEN_UP in said) or (with_loss and REFUSAL_LOST in said)


@contextlib.contextmanager
def noted(run: Run, column: str) -> Iterator[None]:
    """Notes whether a run passed."""
    OUTCOMES[run.id, column] = False
    yield
    OUTCOMES[run.id, column] = True


def server_on_urxe(guest: Guest, run: Run, server: list[str], client: list[str]) -> None:
    def is_ready() -> bool:
        if run.port is None:
            return URXE_LISTENS in Path("/proc/net/unix").read_text(encoding="utf-8", errors="replace")
        return is_listening(str(run.port))

    env = {**os.environ, **ENV}
    serving = subprocess.Popen(on_urxe(server), env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    finished, left_s = None, 0.0
    try:
        wait_for(is_ready, run.id)
        finished = guest.run(client, env=ENV, limit_s=LIMIT_S)
        left_s = LIMIT_S if run.is_done(finished.status, finished.output) else 1.0
    finally:
        said = ended(serving, left_s)
    assert run.is_done(finished.status, finished.output), f"client on rxe: {finished.output}\nserver on urxe: {said}"
    assert run.is_done(serving.returncode, said), f"server on urxe, status {serving.returncode}: {said}"


def ended(serving: subprocess.Popen[str], left_s: float) -> str:
    """What a server printed, which is stopped if it does not end within this time."""
    try:
        return serving.communicate(timeout=left_s)[0]
    except subprocess.TimeoutExpired:
        serving.kill()
        return serving.communicate()[0]


def client_on_urxe(guest: Guest, run: Run, server: list[str], client: list[str]) -> None:
    serving = guest.start(server, env=ENV, limit_s=LIMIT_S + READY_S)
    try:
        asking = ["ss", "-Htln", f"sport = :{run.port}"] if run.port else ["rdma", "resource", "show", "cm_id"]
        wait_for(lambda: "LISTEN" in guest.run(asking).output, run.id)
        # Over iWARP urxe asks again by itself.
        is_refused = run.may_be_refused and run.port is None
        slowly = SLOWLY if is_refused and shutil.which(SLOWLY[0]) else ()
        asked = subprocess.run(
            on_urxe([*slowly, *client]),
            env={**os.environ, **ENV},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert run.is_done(asked.returncode, asked.stdout), f"client on urxe, status {asked.returncode}: {asked.stdout}"
        served = serving.wait()
    finally:
        serving.stop()
    assert run.is_done(served.status, served.output), f"server on rxe, status {served.status}: {served.output}"


@pytest.mark.brief
@each([RUNS[0], next(run for run in RUNS if run.command.startswith("rping"))])
@pytest.mark.parametrize("both", [server_on_urxe, client_on_urxe])
def test_another_process_has_the_port_that_rxe_sends_to(
    guest: Guest, urxe: Side, rxe: Side, both: Callable[[Guest, Run, list[str], list[str]], None], run: Run
) -> None:
    ends = (urxe, rxe) if both is server_on_urxe else (rxe, urxe)
    with first_on_the_host(urxe):
        both(guest, run, *command_lines(run, *ends))


@contextlib.contextmanager
def first_on_the_host(urxe: Side) -> Iterator[None]:
    """A program that waits for its peer, with a queue pair, and so with the first port of the host."""
    port = "18600"
    waiting = subprocess.Popen(on_urxe(["ibv_rc_pingpong", "-d", urxe.device, "-g", urxe.gid, "-p", port]))
    try:
        wait_for(lambda: is_listening(port), "ibv_rc_pingpong")
        yield
    finally:
        waiting.kill()
        waiting.wait()


def outcomes(report: str) -> Mapping[str, str]:
    """What became of each of rdma-core's tests."""
    return dict(re.findall(r"^(test_\S+): (\w+)", report, re.MULTILINE))


@pytest.mark.timeout(1200)
def test_what_passes_on_rxe_passes_on_urxe(guest: Guest) -> None:
    if not RDMA_CORE.exists():
        pytest.skip("there are no tests of rdma-core; `make setup-programs` fetches them")
    line = ["/usr/bin/python3", str(RDMA_CORE_TESTS), str(RDMA_CORE)]
    on_rxe = guest.run([*line, GUEST_DEVICE, "--report", "--limit", "60"], env=ENV, limit_s=1100).output
    ours = subprocess.run(
        on_urxe([*line, HOST_DEVICE, "--report"]), env={**os.environ, **ENV}, capture_output=True, text=True, check=True
    ).stdout
    (BUILT / "rdma-core-on-rxe.txt").write_text(on_rxe)
    (BUILT / "rdma-core-on-urxe.txt").write_text(ours)
    theirs, found = outcomes(on_rxe), outcomes(ours)
    assert "ok" in theirs.values(), on_rxe
    worse = [name for name, outcome in theirs.items() if outcome == "ok" and found.get(name) != "ok"]
    assert not worse, f"pass on Linux rxe, but not on {HOST_DEVICE}: {', '.join(worse)}\n{ours}"


def test_the_table_in_the_documentation_is_what_ran() -> None:
    """The last one: it knows what became of the others."""
    if len(OUTCOMES) < 2 * len(RUNS) + 2 * len(WITH_LOSS):
        pytest.skip("not everything ran")
    (BUILT / "again.txt").write_text("".join(f"{count} times: {name}\n" for name, count in AGAIN.items()))
    found = table(OUTCOMES)
    (BUILT / "matrix.md").write_text(found)
    assert found == documented(), f"docs/interop-runs.md has another table than {BUILT / 'matrix.md'}"
