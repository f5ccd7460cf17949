"""What is told of a simulation of flows: slowdowns by size, and how the network fared."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rocelab.results import SLOWDOWN_METRIC, StepKey
from rocelab.tools.base import Value
from rocelab.virtual.flow_steps import FlowsStep

#: A percentile is told if so many flows are above it, or this is the median.
_ABOVE_MIN: Final = 1.0
_PERCENTILES: Final[tuple[tuple[str, float], ...]] = (("median", 50), ("p95", 95), ("p99", 99), ("p99.9", 99.9))
#: Counters that are samples of their own.
_COUNTERS: Final = ("dropped_packets", "repeated_packets", "pauses", "notifications", "marked_packets")

#: A sample: its key, and its value or why there is none.
Told = tuple[StepKey, Value | str]


def told(step: FlowsStep, outcome: Mapping[str, Any]) -> Iterator[Told]:
    """The samples of a simulation that ended well."""
    flows = outcome["flows"]
    took = np.array(flows["took_ns"], dtype=float)
    slowdown = took / np.array(flows["alone_ns"], dtype=float)
    size_bytes = np.array(flows["size_bytes"])
    counts = np.array(flows["counts"], dtype=bool)
    of_incast = np.array(flows["is_of_incast"], dtype=bool)
    counted = counts & ~of_incast
    for value in [*_slowdowns(slowdown[counted]), *_incasts(slowdown[counts & of_incast]), *_network(step, outcome)]:
        yield step.key, value
    least = 0
    for greatest in step.test.bins_bytes():
        inside = slowdown[counted & (size_bytes > least) & (size_bytes <= greatest)]
        key = step.key_of(greatest)
        if inside.size == 0:
            yield key, f"none of the flows has from {least + 1} to {greatest} bytes: ask for more flows"
        for value in _slowdowns(inside):
            yield key, value
        least = greatest


def _slowdowns(slowdown: NDArray[np.float64]) -> Iterator[Value]:
    """Percentiles, as far as there are flows beyond them, and how many flows those are of."""
    if slowdown.size == 0:
        return
    for name, percent in _PERCENTILES:
        if percent == 50 or slowdown.size * (100 - percent) / 100 >= _ABOVE_MIN:
            yield Value(SLOWDOWN_METRIC, "times", name, float(np.percentile(slowdown, percent)))
    yield Value("flows", "flows", "total", float(slowdown.size))


def _incasts(slowdown: NDArray[np.float64]) -> Iterator[Value]:
    """The same of the flows of incasts."""
    for value in _slowdowns(slowdown):
        yield Value(f"incast_{value.metric}", value.unit, value.statistic, value.value)


def _network(step: FlowsStep, outcome: Mapping[str, Any]) -> Iterator[Value]:
    for name in _COUNTERS:
        yield Value(name, "packets", "total", float(outcome[name]))
    yield Value("queue_max_bytes", "bytes", "max", float(outcome["queue_max_bytes"]))
    yield Value("throughput_mbps", "Mbps", "total", 1000 * float(outcome["throughput_gbps"]))
    ports = step.nodes * step.adapter.port.ports
    paused = 100 * float(outcome["paused_hosts_ns"]) / ports / max(1, int(outcome["simulated_ns"]))
    yield Value("paused_percent", "%", "mean", paused)
    if outcome["fairness"] is not None:
        yield Value("fairness", "1", "total", float(outcome["fairness"]))
    used = _used(outcome["cables"])
    if used:
        yield Value("cable_use_percent", "%", "mean", 100 * float(np.mean(used)))
        yield Value("cable_use_percent", "%", "max", 100 * max(used))


def _used(cables: Mapping[str, Sequence[Any]]) -> list[float]:
    """How much of the time each direction of a cable between switches was busy; of all cables, if there are none."""
    rows = list(zip(cables["from"], cables["to"], cables["used_part"], strict=True))
    between = [used for one, other, used in rows if one.startswith("switch") and other.startswith("switch")]
    return between or [used for _, _, used in rows]


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Writes columns as CSV, for other programs."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
