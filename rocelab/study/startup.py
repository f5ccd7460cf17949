"""What it costs to start a program, so that it can be told apart from what its messages cost.

Most programs do not report their own CPU time, and the CPU time of a whole process has its start in
it: loading, memory, connection, and with perftest 0.22 s of watching the cycle counter. That part
is measured with as few messages as the program takes, once with the smallest and once with the
largest size, because buffers are filled before the start. Sizes between lie on the line between the
two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from statistics import fmean

from rocelab import peers
from rocelab.fabric.base import LinkProfile
from rocelab.study.steps import PairStep
from rocelab.tools.base import CpuTime

_MORE_MESSAGES = 5


class StartupError(Exception):
    """What a start costs is not known, as a step that would have shown it failed. The text says why it did."""


#: Carries out a step, and gives the CPU time of both ends. Raises StartupError if it failed.
Run = Callable[[PairStep], CpuTime]


class StartupCosts:
    """The CPU time of a start, by interconnect and variant; measured when it is first asked for.

    One program starts in several ways: with RDMA-CM perftest's server polls until its client is ready, and 200 queue
    pairs take more than one. A congestion control changes nothing.
    """

    def __init__(self, run: Run, links: Sequence[LinkProfile], size_max_bytes: int) -> None:
        # A start costs the same on every link, and a fast one disturbs least.
        self._link = max(links, key=lambda link: link.rate_mbps or float("inf"))
        self._run = run
        self._size_max_bytes = size_max_bytes
        self._found: dict[tuple[str, str], tuple[CpuTime, CpuTime] | StartupError] = {}

    def of(self, step: PairStep) -> CpuTime:
        """What starting both ends costs at the step's size. Raises StartupError if it cannot be measured."""
        started = (step.interconnect, peers.name_of(step.variant))
        if started not in self._found:
            try:
                self._found[started] = self._measure(step)
            except StartupError as error:
                self._found[started] = error
        ends = self._found[started]
        if isinstance(ends, StartupError):
            raise ends
        small, large = ends
        part = step.size_bytes / self._size_max_bytes
        return CpuTime(
            small.client_s + (large.client_s - small.client_s) * part,
            small.server_s + (large.server_s - small.server_s) * part,
        )

    def _measure(self, step: PairStep) -> tuple[CpuTime, CpuTime]:
        few = step.method.messages_min
        small = self._mean(step, 1, few, tries=3)
        large = self._mean(step, self._size_max_bytes, few, tries=1)
        larger = self._mean(step, self._size_max_bytes, few * (1 + _MORE_MESSAGES), tries=1)
        # Even the fewest messages cost something when they are large: take that off again.
        large = CpuTime(
            max(small.client_s, large.client_s - max(0.0, larger.client_s - large.client_s) / _MORE_MESSAGES),
            max(small.server_s, large.server_s - max(0.0, larger.server_s - large.server_s) / _MORE_MESSAGES),
        )
        return small, large

    def _mean(self, step: PairStep, size_bytes: int, messages: int, *, tries: int) -> CpuTime:
        """The mean of some tries: what disturbs a start disturbs those that are measured just as much."""
        probe = dataclasses.replace(step, link=self._link, size_bytes=size_bytes, messages=messages)
        found = [self._run(probe) for _ in range(tries)]
        return CpuTime(fmean(each.client_s for each in found), fmean(each.server_s for each in found))
