"""Messages to nftables in the kernel: tables, chains and rules, written and read as netlink messages.

The numbers are those of linux/netfilter/nfnetlink.h and linux/netfilter/nf_tables.h. An ordinary user may send these
messages in a user namespace, and they need no program. Runs in the switch, which has no site-packages.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

#: Families: what belongs to interfaces, and what belongs to bridges.
NETDEV: Final = 5
BRIDGE: Final = 7

#: Attributes of rules, lists and expressions: what a reader of rules looks for.
RULE_CHAIN, RULE_EXPRESSIONS = 2, 4
ELEMENT, EXPRESSION_NAME, EXPRESSION_DATA = 1, 1, 2

_TABLE: Final = "rocelab"
_NETLINK_NETFILTER: Final = 12
_REPLY_BYTES: Final = 1 << 16
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST, _ACK, _CREATE, _APPEND, _DUMP = 0x1, 0x4, 0x400, 0x800, 0x300
_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_NFTABLES: Final = 10
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _GET_RULE = 0, 3, 6, 7
_NESTED: Final = 0x8000
_TYPE_MASK: Final = 0x3FFF
_TABLE_NAME: Final = 1
_CHAIN_TABLE, _CHAIN_NAME, _CHAIN_HOOK, _CHAIN_TYPE = 1, 3, 4, 7
_HOOK_NUMBER, _HOOK_PRIORITY, _HOOK_DEVICES, _DEVICE_NAME = 1, 2, 4, 1
_RULE_TABLE: Final = 1

#: A register of 16 bytes, as expressions name it.
REGISTER: Final = 1
#: An expression: its name, and its attributes.
Expression = tuple[str, bytes]


def add(
    family: int, chain: str, hook: int, rules: Sequence[Sequence[Expression]], interfaces: Sequence[str] = ()
) -> None:
    """Add a chain of filters at a hook, with its rules. Raises OSError for what the kernel refuses.

    `interfaces` are those that a hook of the family NETDEV is at.
    """
    devices = nested(_HOOK_DEVICES, *((_DEVICE_NAME, text(name)) for name in interfaces))
    made = attributes(
        (_CHAIN_TABLE, text(_TABLE)),
        (_CHAIN_NAME, text(chain)),
        nested(
            _CHAIN_HOOK,
            (_HOOK_NUMBER, number(hook)),
            (_HOOK_PRIORITY, number(0)),
            *([devices] if interfaces else []),
        ),
        (_CHAIN_TYPE, text("filter")),
    )
    _change(
        family,
        (_NEW_TABLE, _CREATE, attributes((_TABLE_NAME, text(_TABLE)))),
        (_NEW_CHAIN, _CREATE, made),
        *((_NEW_RULE, _CREATE | _APPEND, _rule(chain, each)) for each in rules),
    )


def rules(family: int) -> Iterator[Mapping[int, list[bytes]]]:
    """The attributes of every rule of a family. Raises OSError."""
    request = attributes((_RULE_TABLE, text(_TABLE)))
    with _open() as asking:
        asking.send(_message(family, _NFTABLES << 8 | _GET_RULE, _REQUEST | _DUMP, 1, request))
        for kind, body in _answers(asking):
            if kind == _NLMSG_DONE:
                return
            yield parsed(body[4:])


def _rule(chain: str, expressions: Sequence[Expression]) -> bytes:
    listed = (
        nested(ELEMENT, (EXPRESSION_NAME, text(name)), (EXPRESSION_DATA | _NESTED, data)) for name, data in expressions
    )
    return attributes((_RULE_TABLE, text(_TABLE)), (RULE_CHAIN, text(chain)), nested(RULE_EXPRESSIONS, *listed))


def _change(family: int, *changes: tuple[int, int, bytes]) -> None:
    """All of it or nothing, as one batch."""
    batch = _message(0, _BATCH_BEGIN, _REQUEST, 0, b"", resource=_NFTABLES)
    for at, (kind, flags, body) in enumerate(changes, start=1):
        batch += _message(family, _NFTABLES << 8 | kind, _REQUEST | _ACK | flags, at, body)
    batch += _message(0, _BATCH_END, _REQUEST, len(changes) + 1, b"", resource=_NFTABLES)
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


def _message(family: int, kind: int, flags: int, at: int, body: bytes, *, resource: int = 0) -> bytes:
    body = struct.pack("=BB", family, 0) + struct.pack(">H", resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, flags, at, 0) + body


def attributes(*pairs: tuple[int, bytes]) -> bytes:
    """Attributes one after the other, each by its number."""
    return b"".join(
        struct.pack("=HH", 4 + len(value), kind) + value + bytes(_aligned(len(value)) - len(value))
        for kind, value in pairs
    )


def nested(kind: int, *pairs: tuple[int, bytes]) -> tuple[int, bytes]:
    """An attribute that consists of others."""
    return kind | _NESTED, attributes(*pairs)


def parsed(data: bytes) -> Mapping[int, list[bytes]]:
    """What attributes hold, by their numbers."""
    found: dict[int, list[bytes]] = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found.setdefault(kind & _TYPE_MASK, []).append(data[4:length])
        data = data[_aligned(length) :]
    return found


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def text(words: str) -> bytes:
    """A name as the kernel has it."""
    return words.encode() + b"\0"


def number(value: int) -> bytes:
    """A number of 32 bits as nftables has it."""
    return struct.pack(">I", value)
