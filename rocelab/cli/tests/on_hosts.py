"""What the tests on hosts share: a tiny study, and how rocelab is called on a host."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rocelab.fabric.base import Finished, LinkProfile
from rocelab.results import Sample, list_runs

ROCELAB = [sys.executable, "-m", "rocelab"]
LINK = LinkProfile("b", "bridge")
#: Calls rocelab on the first host: the command, and what it came to.
Run = Callable[..., Finished]
STUDY = """\
schema = 1
id = "tiny"
title = "A tiny study"
repetitions = 2

[[link]]
id = "direct"
kind = "direct"

[[test]]
test = "bandwidth"
sizes_bytes = [65536]
point_ms = 10

[test.variants]
tcp = ["blocking", "kernel-poll"]
soft-roce = ["send"]
"""


def samples_in(results: Path) -> Iterator[Sample]:
    for store in list_runs(results):
        yield from store.samples()
