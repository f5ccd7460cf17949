"""The words and looks of the report: what tests, metrics and series are called and how they are drawn. Data only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rocelab import peers
from rocelab.results import FLOWS_LEVEL, MESH_TEST, SHARING_TEST, SIDE_BY_SIDE_TEST, runs_over_nodes
from rocelab.stats import SeriesKey

NAS_LEVEL = "nas"
"""The level of the NAS Parallel Benchmarks, which have a section of their own."""
NAS_METRIC = "time_s"
CPU_TEST = ("network", "cpu-use")
"""Level and test whose samples are CPU time."""
BEST_TCP = "best TCP"
"""What a comparison with all TCPs that were measured is called: at each size, with the best of them."""
BEST_WAITING: Mapping[peers.Waiting, str] = {"polling": "best TCP that polls", "blocking": "best TCP that sleeps"}
"""What comparisons with the TCPs that wait as Soft RoCE does are called."""


@dataclass(frozen=True, slots=True)
class SeriesStyle:
    """How a series is named and drawn. Told apart by shape and dash too, never by colour alone."""

    label: str
    colour: str
    """Stands out against white and against a dark page alike (contrast of 3 and more on both)."""
    shape: str
    dash: tuple[int, ...] = ()
    check: bool = False
    """Measured to check the series proper, once more with another program, or under another condition, such as load:
    shown, never compared with what others have at their best."""


_SERIES = {
    ("soft-roce", "send"): SeriesStyle("Soft RoCE send", "#2383e2", "circle"),
    ("soft-roce", "write"): SeriesStyle("Soft RoCE write", "#0f9b8e", "square"),
    ("soft-roce", "read"): SeriesStyle("Soft RoCE read", "#8f6be0", "triangle-up"),
    ("soft-roce", "send-events"): SeriesStyle("Soft RoCE by events", "#5aa9f5", "triangle-right", (5, 2)),
    ("soft-roce", "send-events-loaded"): SeriesStyle(
        "Soft RoCE by events, under load", "#5aa9f5", "cross", (1, 3), check=True
    ),
    ("soft-roce", "send-mtu1024"): SeriesStyle("Soft RoCE send, path MTU 1024", "#7d8590", "cross", (1, 3), check=True),
    ("soft-roce", "send-mtu2048"): SeriesStyle(
        "Soft RoCE send, path MTU 2048", "#7d8590", "circle", (4, 2), check=True
    ),
    ("soft-iwarp", "send"): SeriesStyle("iWARP send", "#3a9d3a", "circle", (7, 2)),
    ("soft-iwarp", "write"): SeriesStyle("iWARP write", "#7f9a1f", "square", (7, 2)),
    ("soft-iwarp", "read"): SeriesStyle("iWARP read", "#9c6f9c", "triangle-up", (7, 2)),
    ("soft-iwarp", "send-events"): SeriesStyle("iWARP by events", "#3a9d3a", "triangle-right", (5, 2)),
    ("tcp", "blocking-loaded"): SeriesStyle(peers.title("blocking-loaded"), "#dd5a26", "cross", (1, 3), check=True),
    ("tcp", "blocking"): SeriesStyle(peers.title("blocking"), "#dd5a26", "diamond", (6, 3)),
    ("tcp", "no-delay"): SeriesStyle(peers.title("no-delay"), "#cf4f9e", "square", (3, 3)),
    ("tcp", "zero-copy"): SeriesStyle(peers.title("zero-copy"), "#7a5c2e", "triangle-up", (4, 1)),
    ("tcp", "busy-poll"): SeriesStyle(peers.title("busy-poll"), "#b98200", "triangle-down", (2, 2)),
    ("tcp", "busy-poll-zero-copy"): SeriesStyle(peers.title("busy-poll-zero-copy"), "#7a5c2e", "square", (2, 2)),
    ("tcp", "spin"): SeriesStyle(peers.title("spin"), "#5b8c2a", "diamond", (1, 2)),
    ("tcp", "spin-loaded"): SeriesStyle(peers.title("spin-loaded"), "#5b8c2a", "cross", (1, 3), check=True),
    ("tcp", "kernel-poll"): SeriesStyle(peers.title("kernel-poll"), "#4f81bd", "triangle-left", (4, 2)),
    ("tcp", "kernel-prefer"): SeriesStyle(peers.title("kernel-prefer"), "#c0504d", "square", (5, 1)),
    ("tcp", "kernel-prefer-zero-copy"): SeriesStyle(
        peers.title("kernel-prefer-zero-copy"), "#c0504d", "triangle-up", (4, 1)
    ),
    ("tcp", "busy-poll-kernel-prefer"): SeriesStyle(
        peers.title("busy-poll-kernel-prefer"), "#c0504d", "triangle-down", (2, 2)
    ),
    ("tcp", "blocking-qperf"): SeriesStyle(peers.title("blocking-qperf"), "#7d8590", "cross", (1, 3), check=True),
    ("tcp", "blocking-iperf3"): SeriesStyle(peers.title("blocking-iperf3"), "#7d8590", "cross", (1, 3), check=True),
    ("soft-roce", "openmpi-ucx"): SeriesStyle("Soft RoCE, Open MPI", "#2383e2", "circle"),
    ("soft-roce", "mpich-ucx"): SeriesStyle("Soft RoCE, MPICH with UCX", "#0f9b8e", "square"),
    ("soft-roce", "mpich-ofi"): SeriesStyle("Soft RoCE, MPICH with OFI", "#8f6be0", "triangle-up"),
    ("soft-roce", "openmpi-ofi"): SeriesStyle("Soft RoCE, Open MPI with OFI", "#5aa9f5", "triangle-right", (5, 2)),
    ("soft-iwarp", "openmpi-ofi"): SeriesStyle("iWARP, Open MPI with OFI", "#3a9d3a", "circle", (7, 2)),
    ("soft-iwarp", "mpich-ofi"): SeriesStyle("iWARP, MPICH with OFI", "#9c6f9c", "triangle-up", (7, 2)),
    ("tcp", "openmpi-ob1"): SeriesStyle(peers.title("openmpi-ob1"), "#dd5a26", "diamond", (6, 3)),
    ("tcp", "openmpi-ucx"): SeriesStyle(peers.title("openmpi-ucx"), "#b98200", "triangle-down", (2, 2)),
    ("tcp", "mpich-ofi"): SeriesStyle(peers.title("mpich-ofi"), "#cf4f9e", "triangle-left", (4, 2)),
    ("tcp", "mpich-ucx"): SeriesStyle(peers.title("mpich-ucx"), "#7d8590", "triangle-right", (1, 2)),
}
_SPARE_COLOURS = ("#cf4f9e", "#5b8c2a", "#7d8590", "#c0504d", "#4f81bd")
_INTERCONNECTS = {
    "soft-roce": "Soft RoCE",
    "soft-iwarp": "iWARP",
    "urxe-udp": "Simulated Soft RoCE",
    "urxe-10g": "Simulated Soft RoCE on 10GigE",
    "tcp": "TCP",
    "roce": "RoCE",
    "infiniband": "InfiniBand",
}


_CONTROL_LOOKS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    peers.DEFAULT: ("triangle-left", (1, 2)),
    "bbr": ("square", (8, 2)),
    "reno": ("triangle-right", (3, 1)),
    "dctcp": ("cross", (5, 1, 1, 1)),
}
"""Shape and dash of TCP by congestion control; cubic, which nearly every system has, looks as TCP did before it was
named. iWARP keeps the shape, by which its operations are told apart, and has the dash."""


def series_style(interconnect: str, variant: str, spare: int = 0, default_control: str | None = None) -> SeriesStyle:
    """The style of a known series, or a spare one (numbered by the caller) for one that is new.

    ``default_control`` is what the machine's default congestion control was.
    """
    name, control = peers.name_of(variant), peers.control_of(variant)
    plain, condition = peers.plain_name(name)
    known = _SERIES.get((interconnect, name))
    if known is None and condition is not None and (usual := _SERIES.get((interconnect, plain))) is not None:
        label = f"{usual.label}, {condition}"
        known = dataclasses.replace(usual, label=label, shape="cross", dash=(2, 4), check=True)
    if known is None:
        title = f"{_INTERCONNECTS.get(interconnect, interconnect)} {name}".strip()
        known = SeriesStyle(title, _SPARE_COLOURS[spare % len(_SPARE_COLOURS)], "cross", (4, 2, 1, 2))
    if control is None:
        return known
    shape, dash = _CONTROL_LOOKS.get(control, (known.shape, known.dash))
    if interconnect == peers.TCP:
        return dataclasses.replace(known, label=peers.title(variant, default_control), shape=shape, dash=dash)
    label = f"{known.label}, {peers.control_words(variant, default_control)}"
    return dataclasses.replace(known, label=label, dash=dash)


def series_rank(interconnect: str, variant: str) -> tuple[int, str]:
    """Known series come in the order of this file, new ones behind; congestion controls by name."""
    order = list(_SERIES)
    pair = (interconnect, peers.name_of(variant))
    return (order.index(pair) if pair in _SERIES else len(order), peers.control_of(variant) or "")


@dataclass(frozen=True, slots=True)
class Metric:
    """How a metric is named, and which way is better."""

    title: str
    better: Literal["lower", "higher"]
    log: bool = True


_METRICS = {
    "latency_us": Metric("One-way latency", "lower"),
    "init_us": Metric("Time of MPI_Init", "lower"),
    "contact_us": Metric("Time of the first messages", "lower"),
    "bandwidth_mbps": Metric("Bandwidth", "higher"),
    "message_rate_per_s": Metric("Messages per second", "higher"),
    "cpu_cores": Metric("CPU cores in use, both ends together", "lower", log=False),
    "cpu_us_per_mib": Metric("CPU time per MiB, both ends together", "lower"),
    "compute_us": Metric("Time of computation", "lower"),
    "pure_communication_us": Metric("Time of communication alone", "lower"),
    NAS_METRIC: Metric("Time", "lower"),
    "collective_us": Metric("Time of the collective", "lower"),
    "overlap_percent": Metric("Communication hidden behind computation", "higher", log=False),
}


def metric(name: str) -> Metric:
    """The metric with this name; one that is new is shown under its own name. More is better, but for times."""
    is_time = name.endswith(("_s", "_ms", "_us", "_ns")) and not name.endswith("_per_s")
    return _METRICS.get(name, Metric(name.replace("_", " "), "lower" if is_time else "higher"))


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
    nodes: int = 2
    ranks: int = 2

    @property
    def id(self) -> str:
        """Part of the names of its figures, and its place in the page."""
        if self.level == "network":
            return self.test
        name = f"{self.family}-{self.nodes}-{self.ranks}"
        return f"{name}-overlap" if self.metric == "overlap_percent" else name

    @property
    def family(self) -> str:
        """The same for every scale. IMB and OMB have tests of one name, which differ in the first letter alone."""
        suite = "-imb" if self.test[0].isupper() else ""
        return f"{self.level}{suite}-{self.test}".lower()


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


_MPI_TITLES = {
    "latency": "MPI latency",
    "bw": "MPI bandwidth",
    "bibw": "MPI bidirectional bandwidth",
    "mbw_mr": "MPI bandwidth of several pairs",
    "multi_lat": "MPI latency of several pairs",
    "init": "MPI_Init",
    "hello": "First messages between all processes",
}
_MPI_TEXTS = {
    "latency_us": "The time that the benchmark reports, half of a ping-pong or one call: lower is better.",
    "bandwidth_mbps": "All that moves, of all pairs together: higher is better.",
    "overlap_percent": "How much of the communication goes on while the program computes: higher is better.",
    "init_us": "How long MPI_Init takes, on average over the processes: lower is better.",
    "contact_us": "How long it takes to exchange a first message with every other process: lower is better.",
}


def has_own_section(key: SeriesKey) -> bool:
    """Whether a series is over something else than message sizes."""
    at_once = key.level == "network" and key.test in {SHARING_TEST, SIDE_BY_SIDE_TEST}
    return at_once or runs_over_nodes(key.level, key.test)


def tests_of(keys: list[SeriesKey]) -> list[Test]:
    """The sections for these series: known tests in the order of this file, new ones behind as they came.

    What runs over the number of nodes, or has many programs at once, has a section of its own. So have the levels cloud
    and flows, whose links are compared with each other.
    """
    others = ("cloud", FLOWS_LEVEL)
    keys = [key for key in keys if not has_own_section(key) and key.level not in others]
    present = {(key.level, key.test) for key in keys if not key.metric.startswith("cpu_")}
    known = [test for test in _TESTS if (test.level, test.test) in present]
    names = {(test.level, test.test) for test in known}
    metrics: dict[tuple[str, str, int, int], list[str]] = {}
    for key in keys:
        if (key.level, key.test) not in names and not key.metric.startswith("cpu_"):
            metrics.setdefault((key.level, key.test, key.nodes, key.ranks), []).append(key.metric)
    for place, found in metrics.items():
        if place[0] != "mpi":
            level, test, nodes, ranks = place
            title = test.replace("-", " ").capitalize()
            known.append(Test(level, test, title, test, found[0], "", "as good", nodes, ranks))
            continue
        # Programs report bandwidth and message rate, or latency and what it is made of.
        shown = next((name for name in ("bandwidth_mbps", "latency_us") if name in found), found[0])
        known += [_mpi_test(*place, name) for name in dict.fromkeys((shown, "overlap_percent")) if name in found]
    return known


def _mpi_test(level: str, test: str, nodes: int, ranks: int, metric: str) -> Test:
    """A section for a test of MPI, whose suites have too many for an entry each."""
    title = mpi_title(test, metric)
    if (nodes, ranks) != (2, 2):
        title += f", {ranks} processes on {nodes} nodes"
    better = "the bandwidth" if metric == "bandwidth_mbps" else "as fast" if metric.endswith("_us") else "as much"
    short = test if (nodes, ranks) == (2, 2) else f"{test} {ranks}/{nodes}"
    if metric == "overlap_percent":
        short = f"{short} hidden"
    return Test(level, test, title, short, metric, _MPI_TEXTS.get(metric, ""), better, nodes, ranks)


def mpi_title(test: str, metric: str) -> str:
    """What a test of MPI is called, however many processes take part."""
    title = _MPI_TITLES.get(test, f"{'IMB' if test[0].isupper() else 'MPI'} {test}")
    return f"{title}: hidden behind computation" if metric == "overlap_percent" else title


def level_words(levels: set[str]) -> str:
    """What is held against what, for readers of the overview."""
    words = {
        "network": "Soft RoCE send against whichever TCP is best at that size, of all that were measured.",
        "mpi": "MPI over Soft RoCE against MPI over whichever TCP is best at that size, of all that were measured.",
    }
    return " ".join(text for level, text in words.items() if level in levels)


@dataclass(frozen=True, slots=True)
class Mesh:
    """A part of the section on many nodes that send at once."""

    level: str
    test: str
    title: str
    metric: str
    """The throughput of all nodes together."""
    grows: bool = True
    """Whether each further node brings a further cable that carries; else all share one."""


MESHES = (
    Mesh("network", MESH_TEST, "Full mesh of connections", "throughput_mbps"),
    Mesh("mpi", MESH_TEST, "Full mesh by MPI_Alltoall", "bandwidth_mbps"),
    Mesh("network", "bisection", "Bisection: each of one half with one of the other", "throughput_mbps"),
    Mesh("network", "permutation", "Permutation: each sends to one other", "throughput_mbps"),
    Mesh("network", "incast", "Incast: all others send to the first", "throughput_mbps", grows=False),
)
MESH_RATE_STYLE = SeriesStyle("all cables at their rate", "#7d8590", "cross", (2, 4))
GROUP_STEP = 10
"""So far are names on an axis of names from each other: what is compared at one of them is drawn side by side."""
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
    "back-to-back": "host to host",
    "one-switch": "through a switch",
    "leaf-spine": "through leaves and spines",
    "fat-tree": "through a fat tree",
    "dragonfly": "through a dragonfly",
    "rails": "through rails",
    "listed": "through switches",
}
SIMULATED_LINKS = frozenset({"back-to-back", "one-switch", "leaf-spine", "fat-tree", "dragonfly", "rails", "listed"})
"""Kinds of the virtual fabric, whose cables have the rates of what they join."""
