"""The network level: two programs on the first two nodes, a size at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from typing_extensions import override

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.levels.base import Level, contestants, limit_s
from rocelab.study.schema import Study, TestTable
from rocelab.study.steps import PairStep, Step, fitting_messages
from rocelab.tools import interconnects
from rocelab.tools.base import Method, Test

#: What a link without a rate of its own is taken to carry, to choose a number of messages. Only the
#: duration of a point depends on it.
_ASSUMED_RATE_MBPS = 16_000.0


class PairLevel(Level[TestTable]):
    """Pairs of programs."""

    turn = 0

    @override
    def variants(self, test: TestTable, interconnect: str) -> tuple[str, Sequence[str]]:
        return f"for {test.test}", interconnects.interconnect(interconnect).variants(test.test)

    @override
    def wrong_variant(self, test: TestTable, interconnect: str, variant: str) -> str | None:
        method = interconnects.interconnect(interconnect).methods[test.test, variant]
        largest_bytes = max(test.every_size_bytes(), default=0)
        if method.size_max_bytes is None or largest_bytes <= method.size_max_bytes:
            return None
        return f"{variant} is {method.tool}, which takes at most {method.size_max_bytes} bytes, not {largest_bytes}"

    @override
    def steps(self, study: Study, test: TestTable, link: LinkProfile, repetition: int) -> Iterator[PairStep]:
        taking_part = contestants(study, test)
        for size_bytes in test.every_size_bytes():
            for name, variant in taking_part:
                method = interconnects.interconnect(name).methods[test.test, peers.name_of(variant)]
                message_s = _message_s(method, test.test, size_bytes, link)
                messages = fitting_messages(method, message_s, test.point_ms / 1000)
                yield PairStep(
                    link=link,
                    test=test.test,
                    interconnect=name,
                    variant=variant,
                    method=method,
                    size_bytes=size_bytes,
                    repetition=repetition,
                    messages=messages,
                    message_s=message_s,
                    point_s=test.point_ms / 1000,
                    time_limit_s=limit_s(study, method.overhead_s + messages * message_s),
                )

    @override
    def round_of(self, at: int, step: Step) -> int:
        (size_bytes,) = step.sizes_bytes
        return size_bytes


def _message_s(method: Method, test: Test, size_bytes: int, link: LinkProfile) -> float:
    """About how long one message takes: there and back for latency, there for bandwidth."""
    transfer_us = size_bytes * 8 / (link.rate_mbps or _ASSUMED_RATE_MBPS)
    if test == "latency":
        return 2 * (method.message_us + transfer_us) / 1e6
    both_ways = 2 if test == "bidirectional-bandwidth" and link.rate_mbps is None else 1
    return (method.message_us + transfer_us * both_ways) / 1e6
