"""The steps of a study, in the order they are carried out. The same study always makes the same plan."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rocelab.fabric.base import LinkProfile
from rocelab.results import StepKey
from rocelab.study.schema import Study, TestTable
from rocelab.tools.base import Method, Test
from rocelab.tools.interconnects import interconnect

LEVEL = "network"
#: What a link without a rate of its own is taken to carry, to choose a number of messages. Only the duration of a
#: point depends on it.
_ASSUMED_RATE_MBPS = 16_000.0
#: perftest and rocelab-sock keep a time for every message.
_MESSAGES_MAX = 50_000
#: A step may take this many times what was planned for it, on top of the study's time limit.
_PATIENCE = 10


@dataclass(frozen=True, slots=True)
class Step:
    """One measurement: one program pair, one size, once."""

    link: LinkProfile
    test: Test
    interconnect: str
    variant: str
    method: Method
    size_bytes: int
    repetition: int
    messages: int
    message_s: float
    """What was taken for the time of one message."""
    point_s: float
    """About how long the timed region is to be."""
    time_limit_s: float

    @property
    def key(self) -> StepKey:
        """What identifies the step in the results."""
        return StepKey(
            self.link.id, self.interconnect, LEVEL, self.test, self.variant, self.size_bytes, self.repetition
        )

    @property
    def expected_s(self) -> float:
        """About how long it takes from beginning to end."""
        return self.method.overhead_s + self.messages * self.message_s

    def paced(self, factor: float) -> Step:
        """The same with a fitting number of messages, if a message takes `factor` times as long as was planned."""
        messages = _messages(self.method, self.message_s * factor, self.point_s)
        return dataclasses.replace(self, messages=messages)

    @property
    def series(self) -> tuple[str, str, str, str]:
        """All sizes and repetitions of one thing on one link."""
        return (self.link.id, self.test, self.interconnect, self.variant)


def plan(study: Study) -> list[Step]:
    """Every step of the study.

    Links follow each other. On each, a repetition runs through all sizes, and at each size all variants of all
    interconnects take turns in all tests (A B A B ...): what is compared is measured within seconds, and the
    repetitions of one point lie minutes apart, so that they show how much the machine drifts. Who goes first changes
    with the size and the repetition (and the seed), so that nobody always runs after the same neighbour.
    """
    return [step for link in study.link for step in _on_link(study, link.profile())]


def _on_link(study: Study, link: LinkProfile) -> Iterator[Step]:
    rounds: dict[tuple[int, int], list[Step]] = {}
    for test in study.test:
        for step in _steps(study, test, link):
            rounds.setdefault((step.repetition, step.size_bytes), []).append(step)
    for number, place in enumerate(sorted(rounds)):
        members = rounds[place]
        first = (study.seed + place[0] + number) % len(members)
        yield from members[first:] + members[:first]


def _steps(study: Study, test: TestTable, link: LinkProfile) -> Iterator[Step]:
    if test.links is not None and link.id not in test.links:
        return
    contestants = _take_turns([[(name, variant) for variant in chosen] for name, chosen in test.variants.items()])
    point_s = test.point_ms / 1000
    for repetition in range(study.repetitions_of(test)):
        for size_bytes in test.every_size_bytes():
            for name, variant in contestants:
                method = interconnect(name).methods[test.test, variant]
                message_s = _message_s(method, test.test, size_bytes, link)
                messages = _messages(method, message_s, point_s)
                expected_s = method.overhead_s + messages * message_s
                yield Step(
                    link=link,
                    test=test.test,
                    interconnect=name,
                    variant=variant,
                    method=method,
                    size_bytes=size_bytes,
                    repetition=repetition,
                    messages=messages,
                    message_s=message_s,
                    point_s=point_s,
                    time_limit_s=round(study.time_limit_s + _PATIENCE * expected_s, 1),
                )


def _take_turns(groups: Sequence[Sequence[tuple[str, str]]]) -> list[tuple[str, str]]:
    return [one for turn in zip_longest(*groups) for one in turn if one is not None]


def _message_s(method: Method, test: Test, size_bytes: int, link: LinkProfile) -> float:
    """About how long one message takes: there and back for latency, there for bandwidth."""
    transfer_us = size_bytes * 8 / (link.rate_mbps or _ASSUMED_RATE_MBPS)
    if test == "latency":
        return 2 * (method.message_us + transfer_us) / 1e6
    both_ways = 2 if test == "bidirectional-bandwidth" and link.rate_mbps is None else 1
    return (method.message_us + transfer_us * both_ways) / 1e6


def _messages(method: Method, message_s: float, point_s: float) -> int:
    return max(method.messages_min, min(_MESSAGES_MAX, round(point_s / message_s)))
