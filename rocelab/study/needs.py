"""What a plan takes of a machine: time, memory and disk, estimated before anything runs."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rocelab import peers
from rocelab.study.clouds import daemons_of
from rocelab.study.steps import CloudStep, Step
from rocelab.tools.cloud import CloudMethod, Host, Place

_MIB: Final = 1 << 20
_BESIDE_HEAP_BYTES: Final = 128 * _MIB
"""Of a Java program, beside its heap: code, threads, buffers. Assumed."""
_CLIENTS_BYTES: Final = 512 * _MIB
"""The heap of the largest client, on the first node."""
_EXECUTOR_BYTES: Final = 768 * _MIB
"""The heap of Spark's executor, on each worker."""
_KEPT_BYTES: Final = _MIB
"""Of a measurement, in the run folder: its log, histograms and samples. Assumed, as a most."""
_HEAP: Final = re.compile(r"-Xmx(\d+)m")


@dataclass(frozen=True, slots=True)
class Needs:
    """About how much a plan takes."""

    seconds: float
    memory_bytes: int
    """Of all nodes together, at most at once."""
    disk_bytes: int
    """In the run folder."""


def needs(steps: Sequence[Step], seconds: float) -> Needs:
    """What the steps of a plan take, which last so long together."""
    systems: dict[tuple[str, str | None, int], list[CloudMethod]] = {}
    for step in steps:
        if isinstance(step, CloudStep):
            system = (step.link.id, peers.control_of(step.variant), step.nodes)
            systems.setdefault(system, []).append(step.method)
    memory = max((_system_bytes(nodes, methods) for (_, _, nodes), methods in systems.items()), default=0)
    return Needs(seconds, memory, _KEPT_BYTES * len(steps))


def _system_bytes(nodes: int, methods: Iterable[CloudMethod]) -> int:
    """The daemons that are up at once, and what every test leaves: the largest of each."""
    most: dict[str, int] = {}
    heaps = 0
    for method in methods:
        most[method.test] = max(most.get(method.test, 0), method.stored_bytes)
        heaps = max(heaps, _heaps_bytes(nodes, method))
    return heaps + sum(most.values())


def _heaps_bytes(nodes: int, method: CloudMethod) -> int:
    hosts = tuple(Host(index, f"node{index}", f"node{index}", "", "") for index in range(nodes))
    with tempfile.TemporaryDirectory() as folder:
        place = Place(hosts, "", Path(folder))
        daemons = [each for layer in method.layers for stage in daemons_of(layer, place) for each in stage]
    heaps = [_MIB * int(found[1]) for each in daemons if (found := _HEAP.search(" ".join(each.argv))) is not None]
    heaps.append(_CLIENTS_BYTES)
    if "spark" in method.layers:
        heaps += [_EXECUTOR_BYTES] * (nodes - 1)
    return sum(heaps) + _BESIDE_HEAP_BYTES * len(heaps)
