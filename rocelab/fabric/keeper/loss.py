"""Links that lose packets: a rule of nftables drops some of what comes into a switch from its nodes, and counts them.

The rule is at the ingress of the switch's ports, so it strikes whatever a node sends, also past the IP layer. It is
written and read as netlink messages (linux/netfilter/nfnetlink.h, linux/netfilter/nf_tables.h), which an ordinary
user may send in a user namespace, and which needs no program. Runs in the switch, which has no site-packages.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

#: Of so many packets a rule says how many are dropped.
PARTS: Final = 1_000_000

_TABLE: Final = "rocelab"
_NETLINK_NETFILTER: Final = 12
_REPLY_BYTES: Final = 1 << 16
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST, _ACK, _CREATE, _APPEND, _DUMP = 0x1, 0x4, 0x400, 0x800, 0x300
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NFTABLES: Final = 10
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _GET_RULE = 0, 3, 6, 7
_NETDEV: Final = 5
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF

#: Attributes: of tables, chains and their hooks, rules, lists, and expressions.
_TABLE_NAME: Final = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY, _HOOK_DEVICES, _DEVICE_NAME = 1, 2, 4, 1
_RULE_TABLE, _RULE_CHAIN, _RULE_EXPRESSIONS = 1, 2, 4
_ELEMENT, _EXPRESSION_NAME, _EXPRESSION_DATA = 1, 1, 2
_INGRESS: Final = 0
_REGISTER: Final = 1
_RANDOM, _HOST_TO_NETWORK, _LESS, _VERDICT_REGISTER, _DROP = 1, 1, 2, 0, 0
_COUNTER_PACKETS: Final = 2


def add(link: str, interfaces: Sequence[str], parts: int) -> None:
    """From now on drop so many of PARTS packets that come in at these interfaces. Raises OSError."""
    chain = _attributes(
        (_CHAIN_TABLE, _text(_TABLE)),
        (_CHAIN_NAME, _text(link)),
        (
            _CHAIN_HOOK | _NESTED,
            _attributes(
                (_HOOK_NUMBER, _number(_INGRESS)),
                (_HOOK_PRIORITY, _number(0)),
                (_HOOK_DEVICES | _NESTED, _attributes(*((_DEVICE_NAME, _text(name)) for name in interfaces))),
            ),
        ),
        (_CHAIN_TYPE, _text("filter")),
    )
    rule = _attributes(
        (_RULE_TABLE, _text(_TABLE)),
        (_RULE_CHAIN, _text(link)),
        (_RULE_EXPRESSIONS | _NESTED, _attributes(*((_ELEMENT | _NESTED, each) for each in _dropping(parts)))),
    )
    _change(
        (_NEW_TABLE, _CREATE, _attributes((_TABLE_NAME, _text(_TABLE)))),
        (_NEW_CHAIN, _CREATE, chain),
        (_NEW_RULE, _CREATE | _APPEND, rule),
    )


def dropped() -> dict[str, int]:
    """How many packets each link has lost so far. Raises OSError."""
    request = _attributes((_RULE_TABLE, _text(_TABLE)))
    found: dict[str, int] = {}
    with _open() as asking:
        asking.send(_message(_NFTABLES << 8 | _GET_RULE, _REQUEST | _DUMP, 1, request))
        for kind, body in _answers(asking):
            if kind == _NLMSG_DONE:
                break
            rule = _parsed(body[4:])
            link = rule[_RULE_CHAIN][0].rstrip(b"\0").decode()
            found[link] = found.get(link, 0) + _counted(rule[_RULE_EXPRESSIONS][0])
    return found


def _dropping(parts: int) -> Iterator[bytes]:
    """The expressions of a rule: a random number, whether it is below `parts`, and then the counter and the drop."""
    register = _number(_REGISTER)
    random = _attributes((1, register), (2, _number(PARTS)), (3, _number(_RANDOM)), (4, _number(0)))
    # Numbers are compared as bytes, the first ones first.
    swapped = _attributes(
        (1, register), (2, register), (3, _number(_HOST_TO_NETWORK)), (4, _number(4)), (5, _number(4))
    )
    below = _attributes((1, register), (2, _number(_LESS)), (3 | _NESTED, _attributes((1, _number(parts)))))
    verdict = _attributes((2 | _NESTED, _attributes((1, _number(_DROP)))))
    drop = _attributes((1, _number(_VERDICT_REGISTER)), (2 | _NESTED, verdict))
    for name, data in (
        ("numgen", random),
        ("byteorder", swapped),
        ("cmp", below),
        ("counter", b""),
        ("immediate", drop),
    ):
        yield _attributes((_EXPRESSION_NAME, _text(name)), (_EXPRESSION_DATA | _NESTED, data))


def _counted(expressions: bytes) -> int:
    for element in _parsed(expressions).get(_ELEMENT, []):
        expression = _parsed(element)
        if expression[_EXPRESSION_NAME][0] == _text("counter"):
            (packets,) = struct.unpack(">Q", _parsed(expression[_EXPRESSION_DATA][0])[_COUNTER_PACKETS][0])
            return int(packets)
    return 0


def _change(*changes: tuple[int, int, bytes]) -> None:
    """All of it or nothing, as one batch."""
    batch = _message(_BATCH_BEGIN, _REQUEST, 0, b"", family=0, resource=_NFTABLES)
    for number, (kind, flags, body) in enumerate(changes, start=1):
        batch += _message(_NFTABLES << 8 | kind, _REQUEST | _ACK | flags, number, body)
    batch += _message(_BATCH_END, _REQUEST, len(changes) + 1, b"", family=0, resource=_NFTABLES)
    with _open() as asking:
        asking.send(batch)
        answers = _answers(asking)
        for _ in changes:
            next(answers)


def _open() -> socket.socket:
    asking = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_NETFILTER)
    asking.bind((0, 0))
    return asking


def _answers(asking: socket.socket) -> Iterator[tuple[int, bytes]]:
    """Message by message: its type, and what follows its header. Raises OSError for what the kernel refuses."""
    while True:
        data = asking.recv(_REPLY_BYTES)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            body, data = data[16:length], data[_aligned(length) :]
            if kind == _NLMSG_ERROR:
                (code,) = struct.unpack_from("=i", body)
                if code:
                    raise OSError(-code, os.strerror(-code))
            yield kind, body


def _message(kind: int, flags: int, number: int, body: bytes, *, family: int = _NETDEV, resource: int = 0) -> bytes:
    body = struct.pack("=BB", family, 0) + struct.pack(">H", resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, number, 0) + body


def _attributes(*pairs: tuple[int, bytes]) -> bytes:
    return b"".join(
        struct.pack("=HH", 4 + len(value), kind) + value + bytes(_aligned(len(value)) - len(value))
        for kind, value in pairs
    )


def _parsed(data: bytes) -> Mapping[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found.setdefault(kind & _TYPE_MASK, []).append(data[4:length])
        data = data[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _text(words: str) -> bytes:
    return words.encode() + b"\0"


def _number(value: int) -> bytes:
    return struct.pack(">I", value)
