"""Reads an algorithm of MSCCL from XML, as msccl-tools writes it.

Only elements and attributes are taken. A file with a document type is refused, because that alone declares entities.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn
from xml.parsers import expat

from rocelab.virtual.msccl.algorithm import (
    BUFFERS,
    KINDS,
    PROTOCOLS,
    Algorithm,
    AlgorithmError,
    Block,
    Step,
    wrong,
)

#: The only element that each has in it.
_WITHIN: Final = {"": "algo", "algo": "gpu", "gpu": "tb", "tb": "step"}
_INTEGER: Final = re.compile(r"-?[0-9]{1,9}")
#: As many hosts as a study may have.
_GPUS_MAX: Final = 4096
_STEPS_MAX: Final = 1 << 18

Attributes = Mapping[str, str]


def read(text: bytes) -> Algorithm:
    """The algorithm in a file. Raises AlgorithmError."""
    return _Reader().read(text)


class _Reader:
    """Takes the elements of a file as they come."""

    def __init__(self) -> None:
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._begin
        self._parser.EndElementHandler = self._end
        self._parser.CharacterDataHandler = self._text
        self._parser.StartDoctypeDeclHandler = self._document_type
        self._open: list[str] = [""]
        self._place: list[int] = []
        self._head = ("", 0)
        self._channels = 0
        self._gpus: dict[int, tuple[Block, ...]] = {}
        self._gpu_count = 0
        self._chunks: dict[str, int] = {}
        self._blocks: dict[int, Block] = {}
        self._block = Block(-1, -1, 0, (), 0)
        self._steps: list[Step] = []
        self._step_count = 0

    def read(self, text: bytes) -> Algorithm:
        try:
            self._parser.Parse(text, True)
        except expat.ExpatError as error:
            what = expat.errors.messages[error.code]
            raise wrong(error.lineno, f"this is not XML: {what}") from None
        except (LookupError, ValueError):
            # An encoding that Python does not have, or that is none of text.
            raise AlgorithmError("this is not XML in an encoding that is known; allowed: UTF-8") from None
        collective, chunks = self._head
        return Algorithm(collective, chunks, tuple(self._gpus[gpu] for gpu in range(self._gpu_count)))

    def _wrong(self, words: str) -> NoReturn:
        raise wrong(self._parser.CurrentLineNumber, words, *self._place)

    def _document_type(self, name: str, *_: object) -> None:
        self._wrong(f"a document type ({name}) is not allowed, because it may declare entities: take DOCTYPE out")

    def _text(self, text: str) -> None:
        if text.strip():
            self._wrong(f"text is not allowed: {text.strip()[:40]!r}")

    def _begin(self, name: str, attributes: Attributes) -> None:
        within = self._open[-1]
        allowed = _WITHIN.get(within)
        if name != allowed:
            where = f"in <{within}>" if within else "as the outermost element"
            self._wrong(f"<{name}> is not allowed {where}; allowed: {f'<{allowed}>' if allowed else 'nothing'}")
        self._open.append(name)
        {"algo": self._begin_algo, "gpu": self._begin_gpu, "tb": self._begin_block, "step": self._step}[name](
            attributes
        )

    def _end(self, name: str) -> None:
        self._open.pop()
        if name == "algo":
            self._all_there("gpu", self._gpus, self._gpu_count)
        elif name == "gpu":
            self._end_gpu()
            self._place.pop()
        elif name == "tb":
            block = self._block
            self._blocks[self._place[1]] = Block(block.send, block.recv, block.channel, tuple(self._steps), block.line)
            self._place.pop()

    def _begin_algo(self, attributes: Attributes) -> None:
        self._gpu_count = self._integer(attributes, "ngpus", 2, _GPUS_MAX)
        self._channels = self._integer(attributes, "nchannels", 1)
        chunks = self._integer(attributes, "nchunksperloop", 1)
        self._one_of(attributes, "proto", PROTOCOLS)
        self._head = (self._word(attributes, "coll"), chunks)

    def _begin_gpu(self, attributes: Attributes) -> None:
        gpu = self._integer(attributes, "id", 0, self._gpu_count - 1)
        self._place.append(gpu)
        if gpu in self._gpus:
            self._wrong("this GPU is there twice")
        self._chunks = {buffer: self._integer(attributes, key, 0) for buffer, key in BUFFERS.items()}
        self._blocks = {}

    def _begin_block(self, attributes: Attributes) -> None:
        block = self._integer(attributes, "id", 0)
        self._place.append(block)
        if block in self._blocks:
            self._wrong("this thread block is there twice")
        send, recv = (self._integer(attributes, key, -1, self._gpu_count - 1) for key in ("send", "recv"))
        if self._place[0] in (send, recv):
            self._wrong("a GPU neither sends to itself nor receives from itself; allowed: another, or -1 for none")
        channel = self._integer(attributes, "chan", 0, self._channels - 1)
        self._block = Block(send, recv, channel, (), self._parser.CurrentLineNumber)
        self._steps = []

    def _step(self, attributes: Attributes) -> None:
        self._place.append(len(self._steps))
        self._step_count += 1
        if self._step_count > _STEPS_MAX:
            self._wrong(f"the file has more than {_STEPS_MAX} steps")
        number = self._integer(attributes, "s", 0)
        if number != len(self._steps):
            self._wrong(
                f"s is {number}; allowed: {len(self._steps)}, for steps are numbered from 0 one after the other"
            )
        name = self._one_of(attributes, "type", KINDS)
        kind = KINDS[name]
        if kind.sends and self._block.send < 0:
            self._wrong(f"{name} sends, and the thread block has no GPU to send to (its send is -1)")
        if kind.receives and self._block.recv < 0:
            self._wrong(f"{name} receives, and the thread block has no GPU to receive from (its recv is -1)")
        count = self._integer(attributes, "cnt", 0 if name == "nop" else 1)
        ends = [("src", kind.reads), ("dst", kind.writes)]
        for end, is_own in ends:
            self._check_buffer(attributes, end, count, is_own=is_own)
        block, step = (self._integer(attributes, key, -1) for key in ("depid", "deps"))
        if (block < 0) != (step < 0):
            self._wrong(
                f"depid is {block} and deps is {step}; allowed: a thread block and a step of it, or -1 for both"
            )
        is_waited_for = self._integer(attributes, "hasdep", 0, 1) == 1
        waits_for = None if block < 0 else (block, step)
        self._steps.append(Step(name, count, waits_for, is_waited_for, self._parser.CurrentLineNumber))
        self._place.pop()

    def _check_buffer(self, attributes: Attributes, end: str, count: int, *, is_own: bool) -> None:
        """Of the other end of a message, and where nothing is moved, only the names have to be there."""
        buffer = self._one_of(attributes, f"{end}buf", BUFFERS)
        first = self._integer(attributes, f"{end}off", 0 if is_own else -1)
        there = self._chunks[buffer]
        if is_own and first + count > there:
            self._wrong(
                f"{end}off {first} and cnt {count} end after chunk {there - 1} of buffer {buffer}, "
                f"of which the GPU has {there} ({BUFFERS[buffer]})"
            )

    def _end_gpu(self) -> None:
        gpu = self._place[0]
        self._all_there("tb", self._blocks, len(self._blocks))
        blocks = tuple(self._blocks[block] for block in range(len(self._blocks)))
        for block, each in enumerate(blocks):
            for number, step in enumerate(each.steps):
                if step.waits_for is not None and (words := _wrong_wait(blocks, *step.waits_for)):
                    raise wrong(step.line, words, gpu, block, number)
        self._gpus[gpu] = blocks

    def _all_there(self, what: str, found: Mapping[int, object], count: int) -> None:
        missing = [number for number in range(count) if number not in found]
        if missing:
            self._wrong(f"{what} {missing[0]} is missing; they are numbered from 0 without a gap")

    def _word(self, attributes: Attributes, name: str) -> str:
        if name not in attributes:
            self._wrong(f"{name} is missing in <{self._open[-1]}>")
        return attributes[name]

    def _one_of(self, attributes: Attributes, name: str, allowed: Mapping[str, object] | Sequence[str]) -> str:
        word = self._word(attributes, name)
        if word not in allowed:
            self._wrong(f"{name} is {word[:40]!r}; allowed: {', '.join(allowed)}")
        return word

    def _integer(self, attributes: Attributes, name: str, least: int, most: int | None = None) -> int:
        word = self._word(attributes, name)
        number = int(word) if _INTEGER.fullmatch(word) else None
        if number is None or number < least or (most is not None and number > most):
            allowed = f"{least} or more" if most is None else f"{least} to {most}"
            self._wrong(f"{name} is {word[:40]!r}; allowed: {allowed}")
        return number


def _wrong_wait(blocks: Sequence[Block], block: int, step: int) -> str:
    if block >= len(blocks):
        return f"depid is {block}, and the GPU has no such thread block; allowed: 0 to {len(blocks) - 1}"
    steps = blocks[block].steps
    if step >= len(steps):
        return f"deps is {step}, and tb {block} has no such step; it has {len(steps)}"
    if not steps[step].is_waited_for:
        return f"it waits for tb {block}, step {step}, which has hasdep 0 and tells nothing of its end; set it to 1"
    return ""
