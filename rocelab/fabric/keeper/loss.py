"""Links that lose packets: a rule of nftables drops some of what comes into a switch from its nodes, and counts them.

The rule is at the ingress of the switch's ports, so it strikes whatever a node sends, also past the IP layer. Runs in
the switch, which has no site-packages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final

from rocelab.fabric.keeper import nftables
from rocelab.fabric.keeper.nftables import Expression, attributes, nested, number, parsed, text

#: Of so many packets a rule says how many are dropped.
PARTS: Final = 1_000_000

_INGRESS: Final = 0
_RANDOM, _HOST_TO_NETWORK, _LESS, _VERDICT_REGISTER, _DROP = 1, 1, 2, 0, 0
_COUNTER_PACKETS: Final = 2


def add(link: str, interfaces: Sequence[str], parts: int) -> None:
    """From now on drop so many of PARTS packets that come in at these interfaces. Raises OSError."""
    nftables.add(nftables.NETDEV, link, _INGRESS, [[*_dropping(parts)]], interfaces)


def dropped() -> dict[str, int]:
    """How many packets each link has lost so far. Raises OSError."""
    found: dict[str, int] = {}
    for rule in nftables.rules(nftables.NETDEV):
        link = rule[nftables.RULE_CHAIN][0].rstrip(b"\0").decode()
        found[link] = found.get(link, 0) + _counted(rule[nftables.RULE_EXPRESSIONS][0])
    return found


def _dropping(parts: int) -> Iterator[Expression]:
    """The expressions of a rule: a random number, whether it is below `parts`, and then the counter and the drop."""
    register = number(nftables.REGISTER)
    yield "numgen", attributes((1, register), (2, number(PARTS)), (3, number(_RANDOM)), (4, number(0)))
    # Numbers are compared as bytes, the first ones first.
    swapped = ((1, register), (2, register), (3, number(_HOST_TO_NETWORK)), (4, number(4)), (5, number(4)))
    yield "byteorder", attributes(*swapped)
    yield "cmp", attributes((1, register), (2, number(_LESS)), nested(3, (1, number(parts))))
    yield "counter", b""
    verdict = nested(2, nested(2, (1, number(_DROP))))
    yield "immediate", attributes((1, number(_VERDICT_REGISTER)), verdict)


def _counted(expressions: bytes) -> int:
    for element in parsed(expressions).get(nftables.ELEMENT, []):
        expression = parsed(element)
        if expression[nftables.EXPRESSION_NAME][0] == text("counter"):
            data = parsed(expression[nftables.EXPRESSION_DATA][0])
            (packets,) = struct.unpack(">Q", data[_COUNTER_PACKETS][0])
            return int(packets)
    return 0
