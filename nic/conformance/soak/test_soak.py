"""The short form of `make soak`: each fault once, with one workload or another."""

from __future__ import annotations

import itertools
import math

import pytest

from rocelab.fabric.base import FabricError, Finished

from .faults import FAULTS
from .scene import Holding
from .soak import SAID_CHARS, available, brief, fits, growth, pairs, said, soak

SECONDS = 1.5
#: Long runs, which `make soak` has: 16 ranks that lose much, and programs that only now and then
#: get a processor.
LEFT_OUT = {"loss 5 %", "tiny receive buffer", "oversubscribed 8 times"}

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(900)]


def test_each_fault_once() -> None:
    if len(available()) < 3:
        pytest.skip("perftest is not installed; `make setup` installs it")
    chosen = [pair for pair in brief() if pair[1].id not in LEFT_OUT]
    try:
        runs = list(soak(math.inf, SECONDS, iter(chosen)))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    bad = [run for run in runs if not run.is_good]
    assert not bad
    assert len(runs) == len(chosen)


def test_the_short_form_comes_first_and_has_every_transport() -> None:
    first = brief()
    assert list(itertools.islice(pairs(), len(first))) == first
    assert {workload.transport for workload, _ in first} == {workload.transport for workload in available()}
    # The long form has each once before any comes again.
    every = {(workload.id, fault.id) for workload in available() for fault in FAULTS if fits(workload, fault)}
    assert {(workload.id, fault.id) for workload, fault in itertools.islice(pairs(), len(every))} == every


def test_of_a_long_story_the_first_error_is_told() -> None:
    trace = "\n".join(f"[{frame:2}] libc.so.6(+0x3c050)" for frame in range(40))
    story = f"under way\n[node3] send completion with error: transport retry counter exceeded\n{trace}\n"
    told = said(Finished(134, "", story, 1.0, 1.0, 0.0))
    assert told.startswith("[node3] send completion with error: transport retry counter exceeded\n")
    assert said(Finished(1, trace, "", 1.0, 1.0, 0.0)) == trace[-SAID_CHARS:]


@pytest.mark.parametrize(
    ("descriptors", "memory_mib", "grown"),
    [
        ([30, 35, 35, 35, 35, 35, 36], [24] * 7, []),
        ([30, 35, 35, 35, 35, 36, 37], [24] * 7, []),
        ([30, 35, 35, 35, 35, 38, 39], [24] * 7, ["descriptors grew from 35 to 38"]),
        ([35] * 7, [24, 100, 100, 100, 100, 110, 160], ["memory grew from 100 to 160 MiB"]),
    ],
)
def test_what_is_held_for_a_moment_has_not_grown(
    descriptors: list[int], memory_mib: list[int], grown: list[str]
) -> None:
    held = itertools.chain.from_iterable(
        itertools.repeat(pair, 2) for pair in zip(descriptors, memory_mib, strict=True)
    )
    samples = [Holding(2, count, mib << 20) for count, mib in held]
    assert list(growth(samples[:-1])) == grown
