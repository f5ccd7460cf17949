"""The messages of an algorithm: what each waits for, and which algorithms cannot end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest

from rocelab.virtual.msccl.algorithm import Algorithm, AlgorithmError, Block, Step
from rocelab.virtual.msccl.reading import read
from rocelab.virtual.msccl.schedule import Schedule, schedule_of
from rocelab.virtual.msccl.tests.test_reading import RING


def step(kind: str, *waits_for: int, count: int = 1) -> Step:
    return Step(kind, count, (waits_for[0], waits_for[1]) if waits_for else None, is_waited_for=True, line=0)


def scheduled(*gpus: Sequence[Block]) -> Schedule:
    return schedule_of(Algorithm("custom", 4, tuple(tuple(blocks) for blocks in gpus)))


def block(send: int, recv: int, *steps: Step, channel: int = 0) -> Block:
    return Block(send, recv, channel, steps, 0)


def needs(schedule: Schedule) -> Mapping[tuple[int, int], list[list[tuple[int, int]]]]:
    """By sender and receiver, what each of their messages waits for, by sender and receiver as well."""
    found: dict[tuple[int, int], list[list[tuple[int, int]]]] = {}
    for message in schedule.messages:
        before = [(schedule.messages[at].sender, schedule.messages[at].receiver) for at in message.after]
        found.setdefault((message.sender, message.receiver), []).append(before)
    return found


def test_in_a_ring_each_message_waits_for_the_one_that_came_last() -> None:
    schedule = schedule_of(read(RING.encode()))
    assert len(schedule.messages) == 4 * 6
    for rank in range(4):
        before = ((rank - 1) % 4, rank)
        assert needs(schedule)[rank, (rank + 1) % 4] == [[], *[[before]] * 5]
    assert all(after < at for at, message in enumerate(schedule.messages) for after in message.after)


def test_a_send_waits_for_what_other_thread_blocks_have_got() -> None:
    schedule = scheduled(
        [block(2, -1, step("s"))],
        [block(2, -1, step("s"))],
        [
            block(-1, 0, step("r")),
            block(-1, 1, step("r"), step("re", 0, 0)),
            block(3, -1, step("nop", 0, 0), step("cpy", 1, 1), step("s")),
        ],
        [block(-1, 2, step("r"))],
    )
    assert needs(schedule)[2, 3] == [[(0, 2), (1, 2)]]


def test_sends_do_not_wait_for_sends_before_them() -> None:
    schedule = scheduled([block(1, -1, step("s"), step("s"))], [block(-1, 0, step("r"), step("r"))])
    assert needs(schedule)[0, 1] == [[], []]


def test_channels_are_connections_of_their_own() -> None:
    schedule = scheduled(
        [block(1, -1, step("s")), block(1, -1, step("s", count=2), channel=1)],
        [block(-1, 0, step("r", count=2), channel=1), block(-1, 0, step("r"))],
    )
    assert [(each.channel, each.chunks) for each in schedule.messages] == [(0, 1), (1, 2)]


def test_chunks_divide_what_there_is_and_the_last_is_whole() -> None:
    schedule = schedule_of(read(RING.encode()))
    assert [schedule.chunk_bytes(size_bytes) for size_bytes in (4, 5, 8)] == [1, 2, 2]


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (
            [[block(-1, 1, step("r"))], [block(0, 0, step("nop"))]],
            "gpu 0, tb 0, step 0: deadlock, nothing sends what it receives: gpu 1 never sends to gpu 0 on channel 0",
        ),
        (
            [[block(1, -1, step("s"), step("s"))], [block(-1, 0, step("r"))]],
            "receives what it sends: gpu 0 sends to gpu 1 twice on channel 0, and gpu 1 receives from gpu 0 once",
        ),
        (
            [[block(1, -1, step("s"))], [block(-1, 0, step("r"), channel=1)]],
            "gpu 0, tb 0, step 0: nothing receives what it sends",
        ),
        (
            [[block(1, -1, step("s", count=2))], [block(-1, 0, step("r"))]],
            "gpu 1, tb 0, step 0: it receives 1 chunks (cnt), and gpu 0, tb 0, step 0 (s) sends it 2",
        ),
        (
            [[block(1, -1, step("s")), block(1, -1, step("s"))], [block(-1, 0, step("r"), step("r"))]],
            "gpu 0, tb 1, step 0: it sends to gpu 1 on channel 0, as tb 0 does",
        ),
        ([[block(1, 1, step("cpy"))], []], "no step of the file sends anything"),
        (
            [[block(1, 1, step("r"), step("s"))], [block(0, 0, step("r"), step("s"))]],
            "a circle: gpu 0, tb 0, step 0 (r), which waits for gpu 1, tb 0, step 1 (s), which waits for gpu 1, tb 0",
        ),
        (
            [[block(1, -1, step("nop", 1, 0), step("s")), block(-1, 1, step("nop", 0, 0))], [block(-1, 0, step("r"))]],
            "gpu 0, tb 0, step 0: deadlock, steps wait for each other in a circle: gpu 0, tb 0, step 0 (nop)",
        ),
        ([[block(1, -1, step("nop", 0, 1), step("s"))], [block(-1, 0, step("r"))]], "gpu 0, tb 0, step 0: deadlock"),
    ],
)
def test_what_cannot_end_is_refused(gpus: list[list[Block]], said: str) -> None:
    with pytest.raises(AlgorithmError, match=re.escape(said)):
        scheduled(*gpus)


def test_a_long_circle_is_told_in_part() -> None:
    ranks = 20
    gpus = [[block((rank + 1) % ranks, (rank - 1) % ranks, step("rcs"))] for rank in range(ranks)]
    with pytest.raises(AlgorithmError, match=r"gpu 13, tb 0, step 0 \(rcs\), which waits for 12 more, which waits for"):
        scheduled(*gpus)


def test_tens_of_thousands_of_steps_are_read() -> None:
    ranks, times = 8, 2_000
    gpus = [
        [block((rank + 1) % ranks, (rank - 1) % ranks, step("s"), *[step("rcs")] * times, step("r"))]
        for rank in range(ranks)
    ]
    schedule = scheduled(*gpus)
    assert len(schedule.messages) == ranks * (times + 1)
    assert max(len(message.after) for message in schedule.messages) == 1
