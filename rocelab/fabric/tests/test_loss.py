"""Links that lose packets: how many, one by one, whatever a program sends, and counted."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile
from rocelab.launch.namespace import NamespaceLauncher

pytestmark = pytest.mark.fabric

LOSSY = LinkProfile("lossy", "bridge", mtu_bytes=1500, loss_percent=5)
LOSSLESS = LinkProfile("lossless", "bridge", mtu_bytes=1500, rate_mbps=1000, loss_percent=0)
PLAIN = LinkProfile("plain", "bridge", mtu_bytes=1500)
#: Of so many, 5 % are 500 with a standard deviation of 22.
PACKETS = 10_000
PAYLOAD_BYTES = 1000

#: Sends datagrams, 40 to a system call that leaves the cutting to the kernel (UDP_SEGMENT of
#: linux/udp.h); the other end says how many came. Its socket has room for all (SO_RCVBUFFORCE goes
#: past what the host allows as a rule), so that a receiver that waits for a processor misses none.
#: They go once one has come back: the kernel asks for the receiver's address once in a second, and
#: meanwhile keeps no more than some 150. What it asks, or the answer, may be dropped, too.
_SEND = f"""
import contextlib, socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.settimeout(0.1)
    came_back = b""
    while came_back != b"hello":
        sender.sendto(b"hello", (sys.argv[1], 9999))
        with contextlib.suppress(TimeoutError):
            came_back = sender.recv(5)
    sender.setsockopt(socket.SOL_UDP, 103, {PAYLOAD_BYTES})
    for _ in range({PACKETS} // 40):
        sender.sendto(bytes(40 * {PAYLOAD_BYTES}), (sys.argv[1], 9999))
        time.sleep(0.001)
    time.sleep(0.3)
    for _ in range(50):
        sender.sendto(b"end", (sys.argv[1], 9999))
"""
_RECEIVE = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
    receiver.bind(("0.0.0.0", 9999))
    print("ready", flush=True)
    came, datagram = 0, b""
    while datagram != b"end":
        datagram, sender = receiver.recvfrom(65536)
        if datagram == b"hello":
            receiver.sendto(datagram, sender)
        else:
            came += datagram != b"end"
    print("came", came)
"""
#: Sends frames past the IP layer, and the other end counts those of its Ethertype.
_SEND_FRAMES = f"""
import socket, sys, time
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
    sender.bind((sys.argv[1], 0))
    head = bytes.fromhex("ffffffffffff" + "020000000001" + "88b5")
    for at in range({PACKETS}):
        sender.send(head + bytes(100))
        if at % 40 == 0:
            time.sleep(0.001)
    time.sleep(0.3)
    for _ in range(50):
        sender.send(head + b"end" + bytes(97))
"""
_RECEIVE_FRAMES = """
import socket, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x88B5)) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
    receiver.bind((sys.argv[1], 0x88B5))
    print("ready", flush=True)
    came = 0
    while not receiver.recv(2048)[14:].startswith(b"end"):
        came += 1
    print("came", came)
"""


@pytest.fixture(scope="module")
def fabric(can_emulate: None) -> Iterator[emulated.EmulatedFabric]:
    with emulated.up([LOSSY, LOSSLESS, PLAIN]) as made:
        yield made


def arrived(fabric: emulated.EmulatedFabric, link: LinkProfile, *, frames: bool = False) -> int:
    """How many of PACKETS come from the first node to the second."""
    launcher = NamespaceLauncher(fabric)
    here, there = fabric.nodes
    receive, send = (_RECEIVE_FRAMES, _SEND_FRAMES) if frames else (_RECEIVE, _SEND)
    to = here.interfaces[link.id] if frames else there.addresses[link.id]
    server = launcher.start(there, [sys.executable, "-c", receive, there.interfaces[link.id]])
    while "ready" not in server.output()[0]:
        assert server.poll() is None, server.output()
    sent = launcher.start(here, [sys.executable, "-c", send, to]).wait(30)
    assert sent.exit_status == 0, sent.stderr
    found = re.search(r"came (\d+)", server.wait(10).stdout)
    assert found is not None
    return int(found[1])


@pytest.mark.parametrize("frames", [False, True], ids=["datagrams", "frames"])
def test_packets_are_dropped_one_by_one_and_counted(fabric: emulated.EmulatedFabric, frames: bool) -> None:
    before = fabric.dropped_packets(LOSSY.id)
    lost = PACKETS - arrived(fabric, LOSSY, frames=frames)
    after = fabric.dropped_packets(LOSSY.id)
    # Eight standard deviations.
    assert 325 < lost < 675
    assert before is not None
    assert after is not None
    # A batch of 40 that is dropped counts once. Of those that say that it is the end, and of what
    # the kernels say to each other, some are dropped, too.
    assert lost <= after - before < lost + 30


@pytest.mark.parametrize("link", [LOSSLESS, PLAIN], ids=lambda link: link.id)
def test_nothing_is_dropped_where_nothing_is_to_be(fabric: emulated.EmulatedFabric, link: LinkProfile) -> None:
    assert arrived(fabric, link) == PACKETS
    assert fabric.dropped_packets(link.id) == (None if link is PLAIN else 0)


def test_tcp_gets_through_what_drops_its_packets(fabric: emulated.EmulatedFabric) -> None:
    before = fabric.dropped_packets(LOSSY.id)
    launcher = NamespaceLauncher(fabric)
    here, there = fabric.nodes
    megabytes = 4
    receive = (
        "import socket\nwith socket.create_server(('', 9998)) as s:\n c, _ = s.accept()\n n = 0\n"
        " while got := len(c.recv(1 << 20)): n += got\n print(n)"
    )
    send = (
        "import socket, sys\nwith socket.create_connection((sys.argv[1], 9998)) as s:"
        f" s.sendall(bytes({megabytes} << 20))"
    )
    server = launcher.start(there, [sys.executable, "-c", receive])
    launcher.wait_until_listening(there, server, 9998)
    launcher.start(here, [sys.executable, "-c", send, there.addresses[LOSSY.id]]).wait(60)
    assert server.wait(60).stdout.strip() == str(megabytes << 20)
    after = fabric.dropped_packets(LOSSY.id)
    assert before is not None
    assert after is not None
    # 2900 segments: as many are dropped as of packets, not of batches of 44.
    assert after - before > 70
