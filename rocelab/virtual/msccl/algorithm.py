"""An algorithm of MSCCL as data: what every thread block of every GPU does, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


class AlgorithmError(Exception):
    """A file that is no algorithm, or one that cannot run; the text says what is wrong, where, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a type of step does. Data that it reads or writes in buffers of its own GPU has to be within them."""

    sends: bool = False
    receives: bool = False
    reads: bool = False
    writes: bool = False


#: By the name that a file has: send, receive, copy and reduce, and those that are several at once.
KINDS: Final[Mapping[str, Kind]] = {
    "s": Kind(sends=True, reads=True),
    "r": Kind(receives=True, writes=True),
    "rcs": Kind(sends=True, receives=True, writes=True),
    "rrs": Kind(sends=True, receives=True, reads=True),
    "rrc": Kind(receives=True, writes=True),
    "rrcs": Kind(sends=True, receives=True, reads=True, writes=True),
    "cpy": Kind(reads=True, writes=True),
    "re": Kind(reads=True, writes=True),
    "nop": Kind(),
}
#: Input, output and scratch, and the attribute of a GPU that says how many chunks it has of each.
BUFFERS: Final[Mapping[str, str]] = {"i": "i_chunks", "o": "o_chunks", "s": "s_chunks"}
PROTOCOLS: Final = ("Simple", "LL", "LL128")


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a thread block, which begins once the one before has ended."""

    type: str
    count: int
    """Chunks that it is about."""
    waits_for: tuple[int, int] | None
    """A thread block of the same GPU, and the step of it that has to have ended before."""
    is_waited_for: bool
    line: int

    @property
    def kind(self) -> Kind:
        """What it does."""
        return KINDS[self.type]


@dataclass(frozen=True, slots=True)
class Block:
    """A thread block: one GPU that it may send to and one that it may receive from, both on a channel."""

    send: int
    recv: int
    """Numbers of GPUs; -1 for none."""
    channel: int
    steps: tuple[Step, ...]
    line: int


@dataclass(frozen=True, slots=True)
class Algorithm:
    """The whole file."""

    collective: str
    chunks: int
    """Of the larger of a GPU's input and output."""
    gpus: tuple[tuple[Block, ...], ...]
    """By GPU, its thread blocks."""


def wrong(line: int, words: str, *place: int) -> AlgorithmError:
    """What is wrong at a line: of a GPU, of a thread block of it, of a step of that."""
    named = ", ".join(f"{what} {number}" for what, number in zip(("gpu", "tb", "step"), place, strict=False))
    return AlgorithmError(": ".join(part for part in (f"line {line}", named, words) if part))
