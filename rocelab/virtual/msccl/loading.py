"""What is wrong with a test that a file of MSCCL says, beyond what is wrong in the file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rocelab.study.problems import Wrong
from rocelab.virtual.msccl.files import ScheduleFile
from rocelab.virtual.schema import MSCCL, TestTable, VirtualStudy

#: The longest message of RDMA (IBTA volume 1, 9.7.2).
_MESSAGE_MAX_BYTES: Final = 1 << 31
#: Messages of all groups of a simulation: what a workstation has memory for.
_MESSAGES_MAX: Final = 1 << 18


def wrong_schedule(study: VirtualStudy, at: int, test: TestTable) -> Iterator[Wrong]:
    """Each with the key that it is about."""
    if test.file is None:
        if test.test == MSCCL:
            yield (
                ("test", at, "file"),
                f'{MSCCL} needs file = "NAME.xml": an algorithm of MSCCL, from the study\'s folder',
            )
        return
    if test.test != MSCCL:
        yield ("test", at, "file"), f"{test.test} has no file; {MSCCL} has"
        return
    if test.ranks is not None:
        yield ("test", at, "ranks"), f"the file says how many ranks a group has: {test.file.schedule.ranks}"
    yield from _wrong_sizes(at, test, test.file)
    for other in study.test[:at]:
        named = other.file if isinstance(other, TestTable) else None
        if named is not None and named.name == test.file.name and named.digest != test.file.digest:
            words = f"results call both {named.path} and {test.file.path} {named.name!r}: give one another name"
            yield ("test", at, "file"), words


def _wrong_sizes(at: int, test: TestTable, file: ScheduleFile) -> Iterator[Wrong]:
    schedule, sizes = file.schedule, test.every_size_bytes()
    if sizes and min(sizes) < schedule.chunks:
        words = f"{min(sizes)} bytes have not a byte for each of the {schedule.chunks} chunks of {file.path}"
        yield ("test", at, "sizes_bytes"), words
    longest = max(message.chunks for message in schedule.messages)
    if sizes and longest * schedule.chunk_bytes(max(sizes)) > _MESSAGE_MAX_BYTES:
        words = f"with {max(sizes)} bytes, a message of {longest} chunks is longer than {_MESSAGE_MAX_BYTES} bytes"
        yield ("test", at, "sizes_bytes"), words
    messages = max(test.nodes, default=0) // schedule.ranks * len(schedule.messages)
    if messages > _MESSAGES_MAX:
        words = f"{max(test.nodes)} hosts send {messages} messages; a simulation has at most {_MESSAGES_MAX}"
        yield ("test", at, "nodes"), words
