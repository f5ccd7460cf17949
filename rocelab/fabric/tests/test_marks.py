"""Switches that mark packets: those that say they are ECN capable, beyond a share of a port's rate, and no others."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from rocelab.fabric import emulated
from rocelab.fabric.base import LinkProfile
from rocelab.launch.namespace import NamespaceLauncher

pytestmark = pytest.mark.fabric

MARKING = LinkProfile("marking", "bridge", mtu_bytes=1500, rate_mbps=100, ecn_percent=50)
NEVER = LinkProfile("never", "bridge", mtu_bytes=1500, rate_mbps=100)
#: At 100 Mbps a millisecond has 8 packets of 1538 bytes: 4 is half of it, and 16 may come at once.
PACKETS = 400

#: Sends datagrams of 1000 bytes with an ECN field, so many each millisecond; the other end says how
#: many came, and how many of them marked (IP_RECVTOS of linux/in.h).
_SEND = f"""
import socket, sys, time
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
    sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(sys.argv[2]))
    for at in range({PACKETS}):
        sender.sendto(bytes(1000), (sys.argv[1], 9999))
        if float(sys.argv[3]) and at % 10 == 9:
            time.sleep(float(sys.argv[3]))
    time.sleep(0.3)
    for _ in range(3):
        sender.sendto(b"end", (sys.argv[1], 9999))
"""
_RECEIVE = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
    receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)
    receiver.setsockopt(socket.IPPROTO_IP, 13, 1)
    receiver.bind(("0.0.0.0", 9999))
    print("ready", flush=True)
    fields = []
    while True:
        data, told, _, _ = receiver.recvmsg(2048, 64)
        if data == b"end":
            break
        fields.append(told[0][2][0] & 3)
    print(len(fields), fields.count(3))
"""
_CAPABLE, _NOT_CAPABLE = 2, 0


@pytest.fixture(scope="module")
def fabric(can_emulate: None) -> Iterator[emulated.EmulatedFabric]:
    with emulated.up([MARKING, NEVER]) as made:
        yield made


def marked(fabric: emulated.EmulatedFabric, link: LinkProfile, field: int, *, pause_s: float = 0.0) -> int:
    """How many of PACKETS come marked, which are sent at once, or ten after each pause. All have to come."""
    launcher = NamespaceLauncher(fabric)
    here, there = fabric.nodes
    server = launcher.start(there, [sys.executable, "-c", _RECEIVE])
    while "ready" not in server.output()[0]:
        assert server.poll() is None, server.output()
    command = [sys.executable, "-c", _SEND, there.addresses[link.id], str(field), str(pause_s)]
    sent = launcher.start(here, command).wait(30)
    assert sent.exit_status == 0, sent.stderr
    came, with_mark = map(int, server.wait(10).stdout.split()[1:])
    assert came == PACKETS
    return with_mark


def test_what_exceeds_the_share_is_marked_if_it_says_that_it_is_ecn_capable(fabric: emulated.EmulatedFabric) -> None:
    # The node's own shaping lets 100 Mbps through, twice the share; a packet of 1066 bytes counts
    # as one of 1538, so about two in three are beyond it.
    assert 0.4 * PACKETS < marked(fabric, MARKING, _CAPABLE) < 0.9 * PACKETS


def test_what_is_not_ecn_capable_is_left_as_it_is(fabric: emulated.EmulatedFabric) -> None:
    assert marked(fabric, MARKING, _NOT_CAPABLE) == 0


def test_below_the_share_nothing_is_marked(fabric: emulated.EmulatedFabric) -> None:
    # Ten packets in 20 ms are an eighth of the share, and fewer than may come at once.
    assert marked(fabric, MARKING, _CAPABLE, pause_s=0.02) == 0


def test_a_switch_without_the_key_marks_nothing(fabric: emulated.EmulatedFabric) -> None:
    assert marked(fabric, NEVER, _CAPABLE) == 0
