"""The short form of `make soak`: each fault once, with one workload or another."""

from __future__ import annotations

import itertools
import math

import pytest

from rocelab.fabric.base import FabricError, Finished

from .faults import FAULTS
from .soak import SAID_CHARS, available, pairs, said, soak

SECONDS = 1.5
#: Long runs, which `make soak` has: 16 ranks that lose much, and programs that only now and then get a processor.
LEFT_OUT = {"loss 5 %", "tiny receive buffer", "oversubscribed 8 times"}

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(400)]


def test_each_fault_once() -> None:
    if len(available()) < 3:
        pytest.skip("perftest is not installed; `make setup` installs it")
    brief = [pair for pair in itertools.islice(pairs(), len(FAULTS)) if pair[1].id not in LEFT_OUT]
    try:
        runs = list(soak(math.inf, SECONDS, iter(brief)))
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    bad = [run for run in runs if not run.is_good]
    assert not bad
    assert len(runs) == len(FAULTS) - len(LEFT_OUT)


def test_of_a_long_story_the_first_error_is_told() -> None:
    trace = "\n".join(f"[{frame:2}] libc.so.6(+0x3c050)" for frame in range(40))
    story = f"under way\n[node3] send completion with error: transport retry counter exceeded\n{trace}\n"
    told = said(Finished(134, "", story, 1.0, 1.0, 0.0))
    assert told.startswith("[node3] send completion with error: transport retry counter exceeded\n")
    assert said(Finished(1, trace, "", 1.0, 1.0, 0.0)) == trace[-SAID_CHARS:]
