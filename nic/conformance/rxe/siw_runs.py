"""The programs that run between urxe's iWARP devices and Linux siw, and the table of them in docs/interop-siw.md."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from .kernels import ROOT
from .runs import RDMACM, RPING_EXCUSE, Run

DOCUMENT: Final = ROOT / "docs" / "interop-siw.md"
#: What of siw is set to what, beside what it has by itself. `rtr_type` is the frame that it begins
#: with between peers: 0x80 is a WRITE, and 0x40 a READ.
SETTINGS: Final = {
    "MPA 1": {"mpa_version": "1"},
    "CRC": {"mpa_crc_required": "1"},
    "peers, WRITE": {"peer_to_peer": "1", "rtr_type": "128"},
    "peers, READ": {"peer_to_peer": "1", "rtr_type": "64"},
}
#: The columns of the table. MPA's version and the first frame are for the end that connects to
#: choose.
SIW_COLUMNS: Final = {
    "server": "server on urxe",
    "client": "client on urxe",
    "server, siw has MPA 1": "server on urxe, siw has MPA 1",
    "server, siw has CRC": "server on urxe, siw asks for CRC",
    "client, siw has CRC": "client on urxe, siw asks for CRC",
    "server, siw has peers, WRITE": "server on urxe, siw begins with a WRITE",
    "server, siw has peers, READ": "server on urxe, siw begins with a READ",
}
PERFTEST = "{program} -d {device} -F {options}"


class _Further(TypedDict, total=False):
    ipv6: bool
    with_settings: bool
    server_sends_first: bool


def _perftest(shows: str, command: str, **further: Unpack[_Further]) -> Run:
    return Run(shows, PERFTEST, command, 18515, may_be_refused=True, **further)


def _rdmacm(shows: str, command: str, port: int = 7471, **further: Unpack[_Further]) -> Run:
    return Run(shows, RDMACM, command, port, **further)


def _rping(pings: int = 20, size: str = "", **further: Unpack[_Further]) -> Run:
    address = "{server6}" if further.get("ipv6") else "{server}"
    return Run(
        "WRITE and READ, data checked",
        f"{{program}} -s -a {address} {{options}}|{{program}} -c -a {address} {{options}}",
        f"rping -C {pings} -v -V{size}",
        7174,
        excuses=RPING_EXCUSE,
        proves=rf"^(server )?ping data: rdma-ping-{pings - 1}",
        **further,
    )


SIW_RUNS: Final = (
    _rping(with_settings=True),
    _rping(ipv6=True),
    # rping prints what it reads, and the tests read its output, up to 64 KiB, only after its end.
    _rping(3, " -S 20000"),
    _perftest("SEND", "ib_send_bw -R -n 100", with_settings=True),
    _perftest("SEND, both ways at once", "ib_send_bw -R -n 100 -b"),
    _perftest("SEND, long messages", "ib_send_bw -R -n 10 -s 1048576"),
    _perftest("SEND", "ib_send_lat -R -n 100", with_settings=True),
    _perftest("SEND, with events", "ib_send_lat -R -n 100 -e"),
    _perftest("WRITE", "ib_write_bw -R -n 100", with_settings=True),
    _perftest("WRITE, long messages", "ib_write_bw -R -n 5 -s 4194304"),
    _perftest("WRITE, 4 queue pairs", "ib_write_bw -R -n 50 -s 8192 -q 4"),
    _perftest("WRITE", "ib_write_lat -R -n 100", with_settings=True, server_sends_first=True),
    _perftest("READ", "ib_read_bw -R -n 100", with_settings=True),
    _perftest("READ, long messages", "ib_read_bw -R -n 10 -s 1048576"),
    _perftest("READ", "ib_read_lat -R -n 100"),
    _rdmacm("SEND, several connections", "ucmatose -c 4 -C 20 -S 5000", with_settings=True, server_sends_first=True),
    _rdmacm("SEND, synchronous", "rdma_server|rdma_client", with_settings=True),
    _rdmacm("rsockets", "rstream -S 4096 -C 50"),
    _rdmacm("rsockets, blocking", "rstream -T b -S 4096 -C 50"),
    _rdmacm("rsockets: remote I/O", "riostream -S 4096 -C 50"),
)
