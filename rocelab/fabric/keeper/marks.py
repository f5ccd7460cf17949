"""Switches that mark packets "congestion experienced" (RFC 3168): what DCQCN and other senders react to.

A rule of nftables for each port counts all packets that leave by it. It marks those IPv4 packets that say they are
ECN capable and come while the port has more than its share to send: a queue that is virtual and shorter than the real
one. A kernel need not have a queueing discipline that marks for that. Runs in the switch, which has no site-packages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from rocelab.fabric.keeper import nftables
from rocelab.fabric.keeper.nftables import Expression, attributes, nested, number

#: So many packets may come at once before what exceeds the rate is marked.
BURST_PACKETS: Final = 16

_FORWARD: Final = 2
_META_PROTOCOL, _META_OUT_NAME = 1, 7
_EQUAL, _NOT_EQUAL = 0, 1
_IPV4: Final = struct.pack(">H", 0x0800)
_NAME_BYTES: Final = 16
_SECOND, _PACKETS, _ABOVE = 1, 0, 1
#: Of an IPv4 packet: its first two bytes, of which the last two bits are the ECN field; and its
#: checksum, which is that of whole words.
_NETWORK_HEADER, _WORD_BYTES, _CHECKSUM_OF_IP, _CHECKSUM_OFFSET = 1, 2, 1, 10
_ECN_FIELD, _ALL_BUT_ECN, _EXPERIENCED = b"\x00\x03", b"\xff\xfc", b"\x00\x03"
_NONE: Final = b"\x00\x00"


def add(link: str, interfaces: Sequence[str], packets_per_s: int) -> None:
    """From now on mark what leaves each of these ports of a bridge beyond so many packets a second. Raises OSError."""
    rules = [[*_marking(name, packets_per_s)] for name in interfaces]
    nftables.add(nftables.BRIDGE, link, _FORWARD, rules)


def _marking(interface: str, packets_per_s: int) -> Iterator[Expression]:
    """The expressions of a rule, each of which goes on to the next only if it is true of a packet."""
    register = number(nftables.REGISTER)
    yield "meta", attributes((1, register), (2, number(_META_OUT_NAME)))
    yield "cmp", _compared(_EQUAL, interface.encode().ljust(_NAME_BYTES, b"\0"))
    rate = ((1, struct.pack(">Q", packets_per_s)), (2, struct.pack(">Q", _SECOND)))
    yield "limit", attributes(*rate, (3, number(BURST_PACKETS)), (4, number(_PACKETS)), (5, number(_ABOVE)))
    yield "meta", attributes((1, register), (2, number(_META_PROTOCOL)))
    yield "cmp", _compared(_EQUAL, _IPV4)
    place = ((2, number(_NETWORK_HEADER)), (3, number(0)), (4, number(_WORD_BYTES)))
    yield "payload", attributes((1, register), *place)
    yield "bitwise", _masked(_ECN_FIELD, _NONE)
    yield "cmp", _compared(_NOT_EQUAL, _NONE)
    yield "payload", attributes((1, register), *place)
    yield "bitwise", _masked(_ALL_BUT_ECN, _EXPERIENCED)
    checksum = ((6, number(_CHECKSUM_OF_IP)), (7, number(_CHECKSUM_OFFSET)))
    yield "payload", attributes(*place, (5, register), *checksum)


def _compared(operator: int, value: bytes) -> bytes:
    return attributes((1, number(nftables.REGISTER)), (2, number(operator)), nested(3, (1, value)))


def _masked(mask: bytes, flipped: bytes) -> bytes:
    """A word of which only the bits of a mask are kept, and then some flipped."""
    register = number(nftables.REGISTER)
    length = (3, number(_WORD_BYTES))
    return attributes((1, register), (2, register), length, nested(4, (1, mask)), nested(5, (1, flipped)))
