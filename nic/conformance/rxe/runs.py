"""The programs that run between urxe and Linux rxe, and the table of them in docs/interop-runs.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict, Unpack

from .guest import HERE
from .kernels import ROOT

OPERATIONS: Final = HERE / "operations.py"
DOCUMENT: Final = ROOT / "docs" / "interop-runs.md"
#: The columns of the table of all runs: how the programs ran.
COLUMNS: Final = {
    "server": "server on urxe",
    "client": "client on urxe",
    "server, loss": "server on urxe, 1 % loss",
    "client, loss": "client on urxe, 1 % loss",
}
#: Those of the table of the runs on newer kernels.
NEWER_COLUMNS: Final = {
    "trixie, server": "Debian 13: server on urxe",
    "trixie, client": "Debian 13: client on urxe",
    "sid, server": "sid: server on urxe",
    "sid, client": "sid: client on urxe",
}

#: Those of the table of the runs within guests: with CAP_NET_RAW, so that frames may be sent, and
#: without.
WITHIN_COLUMNS: Final = {
    "bullseye, frames": "Debian 11",
    "bullseye, no frames": "without CAP_NET_RAW",
    "bookworm, frames": "Debian 12",
    "bookworm, no frames": "without CAP_NET_RAW",
    "trixie, frames": "Debian 13",
    "trixie, no frames": "without CAP_NET_RAW",
    "sid, frames": "sid",
    "sid, no frames": "without CAP_NET_RAW",
}

PINGPONG = "{program} -d {device} -g {gid} {options}"
PERFTEST = "{program} -d {device} -x {gid} -F {options}"
#: A server that is told nothing, and a client that is told where it is.
RDMACM = "{program} {options}|{program} -s {server} {options}"
#: What rping says when it closed its event channel under a thread of its own.
RPING_EXCUSE = r"^rdma_get_cm_event: Bad file descriptor$"


@dataclass(frozen=True, slots=True)
class Run:
    """A program with its options, which runs both ways."""

    #: What of RDMA it shows, for people.
    shows: str
    #: How it is started: the server, and behind a bar the client, if that is more than the server's
    #: address at the end. `{program}` and `{options}` stand for the parts of `command`, `{device}`,
    #: `{gid}` and `{server}` for the end's.
    form: str
    #: The program and its options. With a bar, the server and the client are two programs.
    command: str
    #: The port that its server has; None: it listens with RDMA-CM.
    port: int | None = None
    #: Whether the queue pairs are connected over IPv6.
    ipv6: bool = False
    #: Whether it also runs with loss. Unreliable transports then lose messages, and the programs
    #: wait for them.
    with_loss: bool = False
    #: Whether its ends do not wait for each other when they are done: with loss, one may be gone
    #: before it has answered the other's last packet, which then fails. That is so with any device.
    may_miss_the_end: bool = False
    #: Whether its client may be refused by a server that does not listen again yet.
    may_be_refused: bool = False
    #: A line of an end's output which excuses an exit status that is not 0, if the end also printed
    #: `proves`: trouble that is the program's own.
    excuses: str | None = None
    #: A line that an excused end has printed when all of its data were right.
    proves: str | None = None
    #: Whether it is one of the few that `make test` runs.
    is_brief: bool = False
    #: Whether it also runs on newer kernels.
    on_newer: bool = False
    #: Whether it also runs between two urxe within guests.
    within_guests: bool = False
    #: Whether it also runs with other settings of Linux siw.
    with_settings: bool = False
    #: Whether its server sends first. Over iWARP it may do so only if the client's device asked for
    #: a connection between peers.
    server_sends_first: bool = False

    def is_done(self, status: int, said: str) -> bool:
        """Whether an end with this exit status and output did what it is meant to do."""
        if status <= 0:  # Done, or ended by a signal.
            return status == 0
        lines = (self.excuses, self.proves)
        return all(line is not None and re.search(line, said, re.MULTILINE) is not None for line in lines)

    def is_meant(self, column: str) -> bool:
        """Whether it runs as a column of a table says."""
        waits = self.server_sends_first and column.startswith("server") and "peers" not in column
        return not waits and (self.with_loss or "loss" not in column) and (self.with_settings or "siw" not in column)

    @property
    def id(self) -> str:
        """Its name."""
        return self.command + (" over IPv6" if self.ipv6 else "")


class _Further(TypedDict, total=False):
    """What most runs leave as it is."""

    with_loss: bool
    ipv6: bool
    is_brief: bool
    on_newer: bool
    within_guests: bool


def _perftest(shows: str, command: str, **further: Unpack[_Further]) -> Run:
    return Run(shows, PERFTEST, command, 18515, **further)


def _pingpong(shows: str, command: str, **further: Unpack[_Further]) -> Run:
    return Run(shows, PINGPONG, command, 18515, may_miss_the_end=True, **further)


def _rdmacm(shows: str, command: str, **further: Unpack[_Further]) -> Run:
    return Run(shows, RDMACM, command, **further)


def _perftest_cm(shows: str, command: str, **further: Unpack[_Further]) -> Run:
    """What perftest does with RDMA-CM.

    Its client makes a second connection without knowing whether the server listens again; where the server's
    processor is slow, as an emulated one is, it is refused.
    """
    return Run(shows, PERFTEST, command, may_be_refused=True, **further)


def _rping(**further: Unpack[_Further]) -> Run:
    """rping, which at its end closes its event channel while a thread of its own is about to read from it."""
    return Run(
        "RDMA-CM, WRITE and READ, data checked",
        "{program} -s -a {server} {options}|{program} -c -a {server} {options}",
        "rping -C 20 -v -V",
        excuses=RPING_EXCUSE,
        proves=r"^(server )?ping data: rdma-ping-19",
        **further,
    )


#: perftest's programs take the largest path MTU that both ends have, here 4096; the pingpongs 1024.
RUNS: Final = (
    Run(
        "RC: every operation, data checked",
        "/usr/bin/python3 {program} {device} {gid} 7471 {options}",
        str(OPERATIONS),
        7471,
        with_loss=True,
        is_brief=True,
        on_newer=True,
        within_guests=True,
    ),
    Run(
        "RC: every operation, data checked",
        "/usr/bin/python3 {program} {device} {gid} 7471 {options}",
        str(OPERATIONS),
        7471,
        ipv6=True,
    ),
    _pingpong("RC SEND, data checked", "ibv_rc_pingpong -c -n 200", with_loss=True, on_newer=True, within_guests=True),
    _pingpong("RC SEND, data checked", "ibv_rc_pingpong -c -n 200", ipv6=True),
    _pingpong("RC SEND, with events", "ibv_rc_pingpong -c -n 200 -e", with_loss=True),
    _pingpong("RC SEND, MTU 4096", "ibv_rc_pingpong -c -n 100 -m 4096 -s 20000", with_loss=True, on_newer=True),
    # With 16 queue pairs it ends once all together are done, while some still have messages under
    # way: not with loss.
    _pingpong("RC SEND, shared receive queue", "ibv_srq_pingpong -c -n 100", on_newer=True),
    _pingpong("RC SEND, shared receive queue", "ibv_srq_pingpong -c -n 100 -q 1", with_loss=True),
    _pingpong("UC SEND, data checked", "ibv_uc_pingpong -c -n 100", on_newer=True),
    _pingpong("UC SEND, data checked", "ibv_uc_pingpong -c -n 100", ipv6=True),
    _pingpong("UD SEND, data checked", "ibv_ud_pingpong -c -n 100 -s 1000", on_newer=True, within_guests=True),
    _pingpong("UD SEND, data checked", "ibv_ud_pingpong -c -n 100 -s 1000", ipv6=True, is_brief=True),
    _perftest("RC SEND", "ib_send_bw -n 300", with_loss=True, on_newer=True, within_guests=True),
    _perftest("RC SEND, MTU 1024", "ib_send_bw -n 300 -m 1024", with_loss=True),
    _perftest("RC SEND, long messages", "ib_send_lat -n 50 -s 100000 -u 18"),
    _perftest("RC SEND, shared receive queue", "ib_send_bw --use-srq -q 4 -n 100 -s 4096"),
    _perftest("UD SEND", "ib_send_bw -c UD -n 100 -s 1024"),
    _perftest("RC WRITE", "ib_write_bw -n 300", with_loss=True, on_newer=True, within_guests=True),
    _perftest("RC WRITE", "ib_write_bw -n 300", ipv6=True, on_newer=True),
    _perftest("RC WRITE, MTU 1024", "ib_write_bw -n 300 -m 1024", with_loss=True),
    _perftest("RC WRITE, 16 queue pairs", "ib_write_bw -q 16 -n 50 -s 8192"),
    _perftest("RC WRITE, inline", "ib_write_lat -I 64 -n 100 -s 32"),
    _perftest("UC WRITE", "ib_write_bw -c UC -n 100 -s 4096"),
    _perftest("RC READ", "ib_read_bw -n 300", with_loss=True, on_newer=True, within_guests=True),
    _perftest("RC READ", "ib_read_bw -n 300", ipv6=True),
    _perftest("RC READ, MTU 1024", "ib_read_bw -n 300 -m 1024", with_loss=True),
    _perftest("RC fetch and add", "ib_atomic_bw -A FETCH_AND_ADD -n 200", with_loss=True, on_newer=True),
    _perftest("RC compare and swap", "ib_atomic_lat -A CMP_AND_SWAP -n 100", with_loss=True, on_newer=True),
    # Not `-R -c UD`, which hardly ever gets there.
    _perftest_cm("RDMA-CM, SEND", "ib_send_bw -R -n 100", with_loss=True, on_newer=True),
    _perftest_cm("RDMA-CM, WRITE", "ib_write_bw -R -n 100"),
    _perftest_cm("RDMA-CM, READ", "ib_read_lat -R -n 100"),
    _perftest_cm("RDMA-CM, atomics", "ib_atomic_bw -R -n 100"),
    _rping(with_loss=True, on_newer=True, within_guests=True),
    _rping(ipv6=True, is_brief=True, on_newer=True),
    _rdmacm("RDMA-CM, several connections", "ucmatose -c 4 -C 20 -S 5000", with_loss=True, on_newer=True),
    _rdmacm("RDMA-CM, UD", "udaddy -C 20", on_newer=True),
    _rdmacm(
        "rsockets: WRITE with immediate", "rstream -S 4096 -C 50", with_loss=True, on_newer=True, within_guests=True
    ),
    _rdmacm("rsockets, blocking", "rstream -T b -S 4096 -C 50"),
    _rdmacm("rsockets: remote I/O", "riostream -S 4096 -C 50", with_loss=True),
    _rdmacm("RDMA-CM, synchronous", "rdma_server|rdma_client"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """How an end names its device and itself."""

    device: str
    #: The indices of its IPv4 and its IPv6 address in the GID table.
    gid: str
    gid6: str
    address: str
    address6: str


def command_lines(run: Run, here: Side, there: Side) -> tuple[list[str], list[str]]:
    """The server's and the client's, with the server on `here`."""
    programs, _, options = run.command.partition(" ")
    server_form, _, client_form = run.form.partition("|")
    server, _, client = programs.partition("|")

    def line(text: str, program: str, side: Side) -> list[str]:
        words = {
            "program": program,
            "options": options,
            "device": side.device,
            "gid": side.gid6 if run.ipv6 else side.gid,
            # Programs with a port of their own meet there over IPv4, whatever their queue pairs do.
            "server": here.address6 if run.ipv6 and run.port is None else here.address,
            "server6": here.address6,
        }
        return re.sub(r"\{(\w+)\}", lambda match: words[match[1]], text).split()

    return line(server_form, server, here), line(client_form or run.form + " {server}", client or server, there)


#: What only newer kernels have.
NEWER_OPERATIONS: Final = Run(
    "ATOMIC WRITE and FLUSH, data checked",
    "/usr/bin/python3 -m {program} {device} {gid} 7472 {options}",
    "rxe.newer_operations",
    7472,
)
ON_NEWER: Final = tuple(run for run in RUNS if run.on_newer)
WITHIN: Final = tuple(run for run in RUNS if run.within_guests)


def table(
    outcomes: Mapping[tuple[str, str], bool],
    runs: Sequence[Run] = RUNS,
    columns: Mapping[str, str] = COLUMNS,
) -> str:
    """What ran, as it stands in the document: by the run's name and the column, whether it passed."""

    def cell(run: Run, column: str) -> str:
        if not run.is_meant(column):
            return ""
        passed = outcomes.get((run.id, column))
        return "not run" if passed is None else "passes" if passed else "FAILS"

    rows = [["what", "program", *columns.values()], ["---"] * (2 + len(columns))]
    for run in runs:
        name = run.id.replace(str(OPERATIONS), OPERATIONS.name).replace("|", r"\|")
        rows.append([run.shows, f"`{name}`", *(cell(run, column) for column in columns)])
    return "".join(f"| {' | '.join(row)} |\n".replace("  ", " ") for row in rows)


def documented(what: str = "what ran", document: Path = DOCUMENT) -> str:
    """A table as a document has it, between two lines that say what it is of."""
    begin, end = f"<!-- {what}, from nic/conformance/rxe -->\n\n", f"\n<!-- end of {what} -->"
    return document.read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]
