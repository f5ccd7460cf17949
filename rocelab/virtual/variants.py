"""What a test can be run with: the names of variants, and what they mean to the simulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rocelab.virtual.schema import is_collective


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run a test."""

    operation: Literal["send", "write", "read"]
    rails: int = 1
    """Queue pairs that share each message of a ping-pong."""
    one_port: bool = False
    """Whether all queue pairs of a host use one port of its bond, as those that librdmacm makes."""


_OPERATIONS: dict[str, Variant] = {"send": Variant("send"), "write": Variant("write"), "read": Variant("read")}
_PING_PONG: dict[str, Variant] = {
    "send": Variant("send"),
    "send-2-rails": Variant("send", rails=2),
    "mpi": Variant("send"),
    "mpi-2-rails": Variant("send", rails=2),
}
_MPI: dict[str, Variant] = {"mpi": Variant("send"), "mpi-rdmacm": Variant("send", one_port=True)}


def variants_of(test: str, service: str) -> Mapping[str, Variant]:
    """By name, the variants that a test has for adapters of a service."""
    if service == "sockets":
        return {"mpi": Variant("send")}
    if is_collective(test):
        return {"send": Variant("send")}
    return _PING_PONG if test == "latency" else _OPERATIONS | _MPI
