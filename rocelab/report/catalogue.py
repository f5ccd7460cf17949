"""The words and looks of the report: what tests, metrics and series are called and how they are drawn. Data only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocelab.results import MESH_TEST
from rocelab.stats import SeriesKey

SUBJECT = ("soft-roce", "send")
"""The series that is held against TCP: two-sided like TCP, and what the papers measured."""
CPU_TEST = ("network", "cpu-use")
"""Level and test whose samples are CPU time."""
BLOCKING = ("tcp", "blocking")
REFERENCES = (BLOCKING, ("tcp", "busy-poll"))
"""What it is held against. Other TCP series, such as those that check these two, are shown and no more."""


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """How a series is named and drawn. Told apart by shape and dash too, never by colour alone."""

    label: str
    colour: str
    """Stands out against white and against a dark page alike (contrast of 3 and more on both)."""
    shape: str
    dash: tuple[int, ...] = ()
    check: bool = False
    """Measured once more with another program, at a few sizes, to check the series proper: shown, never compared."""


_SERIES = {
    ("soft-roce", "send"): SeriesStyle("Soft RoCE send", "#2383e2", "circle"),
    ("soft-roce", "write"): SeriesStyle("Soft RoCE write", "#0f9b8e", "square"),
    ("soft-roce", "read"): SeriesStyle("Soft RoCE read", "#8f6be0", "triangle-up"),
    ("soft-roce", "send-events"): SeriesStyle("Soft RoCE by events", "#5aa9f5", "triangle-right", (5, 2)),
    ("tcp", "blocking"): SeriesStyle("TCP blocking", "#dd5a26", "diamond", (6, 3)),
    ("tcp", "busy-poll"): SeriesStyle("TCP busy-polling", "#b98200", "triangle-down", (2, 2)),
    ("tcp", "blocking-qperf"): SeriesStyle("TCP blocking, by qperf", "#7d8590", "cross", (1, 3), check=True),
    ("tcp", "blocking-iperf3"): SeriesStyle("TCP blocking, by iperf3", "#7d8590", "cross", (1, 3), check=True),
}
_SPARE_COLOURS = ("#cf4f9e", "#5b8c2a", "#7d8590", "#c0504d", "#4f81bd")
_INTERCONNECTS = {"soft-roce": "Soft RoCE", "tcp": "TCP", "roce": "RoCE", "infiniband": "InfiniBand"}


def series_style(interconnect: str, variant: str, spare: int = 0) -> SeriesStyle:
    """The style of a known series, or a spare one (numbered by the caller) for one that is new."""
    known = _SERIES.get((interconnect, variant))
    if known is not None:
        return known
    name = _INTERCONNECTS.get(interconnect, interconnect)
    return SeriesStyle(f"{name} {variant}".strip(), _SPARE_COLOURS[spare % len(_SPARE_COLOURS)], "cross", (4, 2, 1, 2))


def series_rank(interconnect: str, variant: str) -> int:
    """Known series come in the order of this file, new ones behind."""
    order = list(_SERIES)
    return order.index((interconnect, variant)) if (interconnect, variant) in _SERIES else len(order)


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is named, and which way is better."""

    title: str
    better: Literal["lower", "higher"]
    log: bool = True


_METRICS = {
    "latency_us": Metric("One-way latency", "lower"),
    "bandwidth_mbps": Metric("Bandwidth", "higher"),
    "message_rate_per_s": Metric("Messages per second", "higher"),
    "cpu_cores": Metric("CPU cores in use, both ends together", "lower", log=False),
    "cpu_us_per_mib": Metric("CPU time per MiB, both ends together", "lower"),
}


def metric(name: str) -> Metric:
    """The metric with this name; one that is new is shown under its own name, more being better."""
    return _METRICS.get(name, Metric(name.replace("_", " "), "higher"))


@dataclass(frozen=True, slots=True)
class Test:
    """A section of the report."""

    level: str
    test: str
    title: str
    short: str
    metric: str
    text: str
    faster: str
    """What a ratio above one is called: ``as fast``, ``the bandwidth``."""


_TESTS = (
    Test(
        "network",
        "latency",
        "Latency",
        "Latency",
        "latency_us",
        "Half the time of a ping-pong of one message: lower is better.",
        "as fast",
    ),
    Test(
        "network",
        "bandwidth",
        "Bandwidth",
        "Bandwidth",
        "bandwidth_mbps",
        "One way, messages back to back: higher is better. TCP may join small messages; RDMA keeps each apart.",
        "the bandwidth",
    ),
    Test(
        "network",
        "bidirectional-bandwidth",
        "Bidirectional bandwidth",
        "Both ways",
        "bandwidth_mbps",
        "Both ways at once, the sum of the two directions: higher is better.",
        "the bandwidth",
    ),
)


def tests_of(keys: list[SeriesKey]) -> list[Test]:
    """The sections for these series: known tests in the order of this file, new ones behind as they came.

    Meshes have a section of their own, because they run over the number of nodes.
    """
    present = {
        (key.level, key.test): key.metric
        for key in reversed(keys)
        if not key.metric.startswith("cpu_") and key.test != MESH_TEST
    }
    known = [test for test in _TESTS if (test.level, test.test) in present]
    names = {(test.level, test.test) for test in known}
    unknown = [(place, name) for place, name in reversed(present.items()) if place not in names]
    return known + [
        Test(level, test, test.replace("-", " ").capitalize(), test, name, "", "as good")
        for (level, test), name in unknown
    ]


@dataclass(frozen=True, slots=True)
class Mesh:
    """A part of the section on meshes."""

    level: str
    title: str
    metric: str
    """The throughput of all nodes together."""


MESHES = (
    Mesh("network", "Full mesh of connections", "throughput_mbps"),
    Mesh("mpi", "Full mesh by MPI_Alltoall", "throughput_mbps"),
)
MESH_RATE_STYLE = SeriesStyle("all cables at their rate", "#7d8590", "cross", (2, 4))
FIGURE_LOOKS = (
    ("#2383e2", "circle", ()),
    ("#dd5a26", "diamond", (6, 3)),
    ("#0f9b8e", "square", ()),
    ("#b98200", "triangle-down", (2, 2)),
    ("#8f6be0", "triangle-up", (4, 2, 1, 2)),
    ("#cf4f9e", "cross", (1, 3)),
)
"""Colour, shape and dash of the lines of a figure that is drawn again, whose names are those of its source."""

LINK_TEXTS = {
    "direct": "server to server",
    "bridge": "through a switch",
    "two-level": "through two levels of switches",
}
