"""urxe's iWARP devices against Linux siw, the kernel's own, over a wire: part of `make interop`.

Each program of `siw_runs.py` runs both ways, and some once more with other settings of siw. What went over the wire is
captured, and tshark has to understand all of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from .capture import Dissected, captured, dissect, missing
from .guest import (
    GUEST_INTERFACE,
    GUEST_SIW,
    HERE,
    HOST_ADDRESS,
    HOST_ADDRESS6,
    HOST_DEVICE,
    LINK_MTU_BYTES,
    Guest,
    Running,
)
from .interop import LIMIT_S, attempt, client_on_urxe, each, ended, is_listening, on_urxe, server_on_urxe, wait_for
from .kernels import BUILT
from .runs import Run, Side, command_lines, documented, table
from .siw_module import PARAMETERS
from .siw_runs import DOCUMENT, SETTINGS, SIW_COLUMNS, SIW_RUNS

pytestmark = [pytest.mark.timeout(900), pytest.mark.usefixtures("iwarp", "far")]
#: How late what the host sends is in the guest.
DELAY: Final = "10ms"
#: What became of each run, by its name and its column in the table.
OUTCOMES: dict[tuple[str, str], bool] = {}
CAPTURES: Final = BUILT / "siw" / "captures"
PARLEY_PORT: Final = "7475"
BOTH_WAYS = pytest.mark.parametrize("is_server_on_urxe", [True, False], ids=["server on urxe", "client on urxe"])
ESTABLISHED: Final = "RDMA_CM_EVENT_ESTABLISHED"
DISCONNECTED: Final = "RDMA_CM_EVENT_DISCONNECTED"
#: The longest private data that siw sends: its length, with the 4 bytes of enhanced set-up, has 8
#: bits there.
LONGEST: Final = "".join(chr(ord("a") + number % 26) for number in range(251))
RCOPY_PORT: Final = 7427
#: A file of some megabytes, which fits no single message of rsockets.
COPIED_BYTES: Final = 3_000_001

Both = Callable[[Guest, Run, list[str], list[str]], None]


@pytest.fixture(scope="module")
def iwarp() -> Iterator[None]:
    """Programs that run on urxe have iWARP devices."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("URXE_TRANSPORT", "iwarp")
        yield


@pytest.fixture(scope="module")
def far(siw_guest: Guest) -> None:
    """The guest is far away from the host.

    siw looks for input only a while after its reply, and does not see what has come before (docs/dev/iwarp.md). On an
    emulated processor that while is long.
    """
    add = f"tc filter add dev {GUEST_INTERFACE}"
    lines = [
        f"ip link set ifb0 mtu {LINK_MTU_BYTES} up",
        f"tc qdisc add dev ifb0 root netem delay {DELAY}",
        f"tc qdisc add dev {GUEST_INTERFACE} ingress",
        f"{add} parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev ifb0",
    ]
    siw_guest.shell(*lines)


@pytest.fixture(scope="module")
def urxe() -> Side:
    """The end on the host."""
    return Side(HOST_DEVICE, "0", "0", HOST_ADDRESS, HOST_ADDRESS6)


@pytest.fixture(scope="module")
def siw(siw_guest: Guest) -> Side:
    """The end in the guest."""
    return Side(GUEST_SIW, "0", "0", siw_guest.address, siw_guest.address6)


@pytest.fixture(scope="module")
def parley() -> Path:
    """A program that shows what RDMA-CM tells, for both ends."""
    program = BUILT / "parley"
    line = ["cc", "-O1", "-Wall", "-Werror", str(HERE / "parley.c"), "-o", str(program), "-lrdmacm", "-libverbs"]
    subprocess.run(line, check=True)
    return program


@contextlib.contextmanager
def siw_has(guest: Guest, settings: Mapping[str, str]) -> Iterator[None]:
    """Meanwhile siw has these settings."""

    def write(values: Mapping[str, str]) -> None:
        folder = "/sys/module/siw/parameters"
        lines = [f"echo {value} > {folder}/{name}" for name, value in values.items()]
        guest.shell(*lines)

    write(settings or {"peer_to_peer": "N"})
    yield
    write({parameter.name: parameter.usual for parameter in PARAMETERS})


@contextlib.contextmanager
def understood(name: str) -> Iterator[list[Dissected]]:
    """What goes over the wire meanwhile has to be right for tshark, which says afterwards what it was."""
    if (program := missing()) is not None:
        pytest.skip(f"{program} is not installed (Debian: tshark)")
    CAPTURES.mkdir(parents=True, exist_ok=True)
    path = CAPTURES / f"{re.sub(r'[^A-Za-z0-9]+', '-', name)}.pcap"
    seen: list[Dissected] = []
    with captured(path):
        yield seen
    seen.append(dissect(path))
    assert not seen[0].wrong, f"{path}: {seen[0].wrong[:5]}"
    assert seen[0].setup_frames >= 2, f"tshark finds no connection in {path}"


def ran(both: Both, guest: Guest, run: Run, ends: tuple[Side, Side], column: str) -> None:
    """Run a program with the server on the first end, and note it."""
    OUTCOMES[run.id, column] = False
    with understood(f"{run.id} {column}") as seen:
        attempt(both, guest, run, *command_lines(run, *ends))
    # urxe asks for CRCs, so there are some whatever siw does.
    assert seen[0].right_crcs > 0, seen
    OUTCOMES[run.id, column] = True


@each([run for run in SIW_RUNS if run.is_meant("server")])
def test_server_on_urxe(siw_guest: Guest, urxe: Side, siw: Side, run: Run) -> None:
    ran(server_on_urxe, siw_guest, run, (urxe, siw), "server")


@each(SIW_RUNS)
def test_client_on_urxe(siw_guest: Guest, urxe: Side, siw: Side, run: Run) -> None:
    ran(client_on_urxe, siw_guest, run, (siw, urxe), "client")


def cases() -> Iterator[Any]:
    """Each program with each setting that it is meant to run with."""
    for column in SIW_COLUMNS:
        for run in SIW_RUNS:
            if "siw" in column and run.is_meant(column):
                yield pytest.param(column, run, id=f"{column}, {run.id}")


@pytest.mark.parametrize(("column", "run"), [*cases()])
def test_with_other_settings_of_siw(siw_guest: Guest, urxe: Side, siw: Side, column: str, run: Run) -> None:
    server, settings = column.split(", siw has ")
    with siw_has(siw_guest, SETTINGS[settings]):
        if server == "server":
            ran(server_on_urxe, siw_guest, run, (urxe, siw), column)
        else:
            ran(client_on_urxe, siw_guest, run, (siw, urxe), column)


class End:
    """A program at one of both ends."""

    def __init__(self, guest: Guest, line: list[str], *, is_on_urxe: bool) -> None:
        self._here: subprocess.Popen[str] | None = None
        self._there: Running | None = None
        self._heard = ""
        if is_on_urxe:
            self._here = subprocess.Popen(on_urxe(line), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        else:
            self._there = guest.start(line, limit_s=LIMIT_S)

    def said(self) -> str:
        """All that it printed, once it ends; and the exit status, if that is not 0."""
        if self._here is not None:
            self._heard += ended(self._here, LIMIT_S)
            status = self._here.returncode
        else:
            assert self._there is not None
            finished = self._there.wait()
            self._heard, status = finished.output, finished.status
        return self._heard + (f"status {status}\n" if status else "")

    def has_said(self, words: str) -> None:
        """Wait until a program on the host prints this."""
        assert self._here is not None
        assert self._here.stdout is not None
        for line in self._here.stdout:
            self._heard += line
            if words in line:
                return
        raise AssertionError(f"not {words}: {self._heard}")

    def kill(self) -> None:
        """End it with SIGKILL, if it has not ended."""
        if self._here is not None:
            self._here.kill()
            self._here.wait()
            assert self._here.stdout is not None
            self._here.stdout.close()
        if self._there is not None:
            self._there.stop()


@contextlib.contextmanager
def parleying(
    guest: Guest,
    program: Path,
    answer: str,
    then: str,
    data: tuple[str, str] = ("question", "answer"),
    *,
    is_server_on_urxe: bool,
) -> Iterator[tuple[End, End]]:
    """`parley` that listens, and the one that connects to it."""
    listening = [str(program), "listen", PARLEY_PORT, answer, data[1]]
    address = HOST_ADDRESS if is_server_on_urxe else guest.address
    with contextlib.ExitStack() as running:
        server = End(guest, listening, is_on_urxe=is_server_on_urxe)
        running.callback(server.kill)
        listens = ["ss", "-Htln", f"sport = :{PARLEY_PORT}"]
        if is_server_on_urxe:
            wait_for(lambda: is_listening(PARLEY_PORT), "parley")
        else:
            wait_for(lambda: "LISTEN" in guest.run(listens).output, "parley")
        connecting = [str(program), "connect", address, PARLEY_PORT, data[0], then]
        client = End(guest, connecting, is_on_urxe=not is_server_on_urxe)
        running.callback(client.kill)
        yield server, client


@BOTH_WAYS
@pytest.mark.parametrize("data", [("question", "answer"), (LONGEST, LONGEST[::-1]), ("", "")], ids=["8", "251", "no"])
def test_private_data_arrives(siw_guest: Guest, parley: Path, data: tuple[str, str], is_server_on_urxe: bool) -> None:
    with (
        understood(f"private data {len(data[0])} {is_server_on_urxe}"),
        parleying(siw_guest, parley, "accept", "leave", data, is_server_on_urxe=is_server_on_urxe) as (server, client),
    ):
        asked, answered = client.said(), server.said()
    assert f"RDMA_CM_EVENT_CONNECT_REQUEST 0 [{data[0]}]\n" in answered, answered
    assert f"{ESTABLISHED} 0 [{data[1]}]\n" in asked, asked
    for said in (asked, answered):
        assert DISCONNECTED in said, said
        assert "status" not in said, said


@BOTH_WAYS
def test_a_rejection_arrives_with_its_private_data(siw_guest: Guest, parley: Path, is_server_on_urxe: bool) -> None:
    with (
        understood(f"rejection {is_server_on_urxe}"),
        parleying(siw_guest, parley, "reject", "leave", is_server_on_urxe=is_server_on_urxe) as (server, client),
    ):
        asked, answered = client.said(), server.said()
    assert re.search(r"^RDMA_CM_EVENT_REJECTED -\d+ \[answer\]$", asked, re.MULTILINE), asked
    assert "status" not in asked + answered, asked + answered


@BOTH_WAYS
def test_a_port_without_a_listener_refuses(siw_guest: Guest, parley: Path, is_server_on_urxe: bool) -> None:
    address = HOST_ADDRESS if is_server_on_urxe else siw_guest.address
    line = [str(parley), "connect", address, PARLEY_PORT, "question", "leave"]
    said = End(siw_guest, line, is_on_urxe=not is_server_on_urxe).said()
    # siw connects while the call waits, which fails then.
    refused = "rdma_connect: Connection refused" if is_server_on_urxe else "RDMA_CM_EVENT_REJECTED"
    assert refused in said, said


@BOTH_WAYS
@pytest.mark.parametrize("killed", ["server", "client"])
def test_an_end_hears_that_the_other_was_killed(
    siw_guest: Guest, parley: Path, killed: str, is_server_on_urxe: bool
) -> None:
    with (
        understood(f"killed {killed} {is_server_on_urxe}"),
        parleying(siw_guest, parley, "accept", "stay", is_server_on_urxe=is_server_on_urxe) as (server, client),
    ):
        (server if is_server_on_urxe else client).has_said(ESTABLISHED)
        if killed == "server":
            server.kill()
            said = client.said()
        else:
            client.kill()
            said = server.said()
    assert DISCONNECTED in said, said


@BOTH_WAYS
@pytest.mark.parametrize("what", ["read", "write", "send"])
def test_what_the_peer_refuses_ends_the_connection(
    siw_guest: Guest, parley: Path, what: str, is_server_on_urxe: bool
) -> None:
    with (
        understood(f"refused {what} {is_server_on_urxe}") as seen,
        parleying(siw_guest, parley, "accept", what, is_server_on_urxe=is_server_on_urxe) as (server, client),
    ):
        asked, answered = client.said(), server.said()
    # Of the three only a READ has an answer, which siw does not tell apart from the end of the
    # connection. The others are complete once TCP has them.
    refused = "Work Request Flushed Error" if is_server_on_urxe else "remote access error"
    assert f"{what}: {refused if what == 'read' else 'success'}\n" in asked, asked
    assert DISCONNECTED in answered, answered
    assert "Terminate" in seen[0].opcodes, seen


@BOTH_WAYS
def test_rcopy_copies_a_file(siw_guest: Guest, tmp_path: Path, is_server_on_urxe: bool) -> None:
    content = os.urandom(COPIED_BYTES)
    source = BUILT / "siw" / "source"
    source.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    listens = ["ss", "-Htln", f"sport = :{RCOPY_PORT}"]
    server = End(siw_guest, ["rcopy"], is_on_urxe=is_server_on_urxe)
    try:
        with understood(f"rcopy {is_server_on_urxe}"):
            if is_server_on_urxe:
                wait_for(lambda: is_listening(str(RCOPY_PORT)), "rcopy")
                copy = tmp_path / "copy"
                copying = siw_guest.run(["rcopy", str(source), f"{HOST_ADDRESS}:{copy}"], limit_s=LIMIT_S)
                said, status = copying.output, copying.status
                found = hashlib.sha256(copy.read_bytes()).hexdigest() if copy.exists() else said
            else:
                wait_for(lambda: "LISTEN" in siw_guest.run(listens).output, "rcopy")
                line = on_urxe(["rcopy", str(source), f"{siw_guest.address}:/dev/shm/copy"])
                done = subprocess.run(line, capture_output=True, text=True, timeout=LIMIT_S, check=False)
                said, status = done.stdout + done.stderr, done.returncode
                found = siw_guest.run(["sha256sum", "/dev/shm/copy"]).output
    finally:
        server.kill()
    assert status == 0, said
    assert digest in found, f"{found}\n{said}"


def test_the_table_in_the_documentation_is_what_ran() -> None:
    """The last one: it knows what became of the others."""
    if len(OUTCOMES) < sum(run.is_meant(column) for run in SIW_RUNS for column in SIW_COLUMNS):
        pytest.skip("not everything ran")
    found = table(OUTCOMES, SIW_RUNS, SIW_COLUMNS)
    (BUILT / "siw.md").write_text(found)
    assert found == documented("what ran with siw", DOCUMENT), f"{DOCUMENT} has another table than {BUILT / 'siw.md'}"
