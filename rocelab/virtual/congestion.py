"""Congestion control of simulated adapters: which there is, and its parameters. docs/congestion-control.md has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rocelab.virtual.schema import LinkTable

Algorithm = Literal["none", "dcqcn", "hpcc", "timely", "swift", "dctcp"]

#: DCQCN as adapters have it by default (NVIDIA, "DCQCN CC Parameters"), for all rates.
_DCQCN: Mapping[str, int] = {
    "raise_interval_ns": 300_000,
    "raise_bytes": 32_767_000,
    "additive_step_mbps": 5,
    "hyper_step_mbps": 50,
    "min_rate_mbps": 1,
    "cnp_interval_ns": 4_000,
    "cut_interval_ns": 4_000,
    "alpha_interval_ns": 1_000,
    "gain_divisor": 205,
    "fast_recovery_raises": 1,
}
#: What a study may set of each. The simulator has the defaults, but for DCQCN.
PARAMETERS: Mapping[Algorithm, tuple[str, ...]] = {
    "none": (),
    "dcqcn": tuple(_DCQCN),
    "hpcc": ("target_utilisation", "additive_stages", "expected_flows", "min_rate_mbps"),
    "timely": (
        "low_ns",
        "high_ns",
        "min_round_trip_ns",
        "additive_step_mbps",
        "gradient_gain",
        "decrease_gain",
        "hyper_after",
        "hyper_steps",
        "segment_bytes",
        "min_rate_mbps",
        "patched",
    ),
    "swift": (
        "base_target_ns",
        "hop_ns",
        "flow_range_ns",
        "flow_min_packets",
        "flow_max_packets",
        "endpoint_target_ns",
        "additive_packets",
        "decrease_gain",
        "max_decrease",
        "min_window_packets",
        "reset_after",
    ),
    "dctcp": ("gain", "first_window_packets", "additive_packets"),
}
#: A parameter of all that act on acknowledgements: the longest round trip while nothing waits.
BASE_ROUND_TRIP = "base_round_trip_ns"
#: Those that act on marks.
BY_MARKS: tuple[Algorithm, ...] = ("dcqcn", "dctcp")
#: Those that act on what acknowledgements bring back.
BY_ACKNOWLEDGEMENTS: tuple[Algorithm, ...] = ("hpcc", "timely", "swift", "dctcp")
#: Where DCTCP has all packets marked, for each 25 Gbps: 30 KB at 10 Gbps, as in HPCC's public
#: simulator (run.py).
_DCTCP_MARKS_BYTES_PER_25G = 75_000


def algorithm_of(link: LinkTable) -> Algorithm:
    """What a link's adapters have. Marks alone mean DCQCN."""
    if link.congestion_control is not None:
        return link.congestion_control
    return "dcqcn" if link.ecn else "none"


def allowed_parameters(algorithm: Algorithm) -> tuple[str, ...]:
    """The names that a study may set."""
    base = (BASE_ROUND_TRIP,) if algorithm in BY_ACKNOWLEDGEMENTS else ()
    return (*PARAMETERS[algorithm], *base)


def host_keys(link: LinkTable) -> Iterator[tuple[str, Any]]:
    """What a scenario's host has for a link: keys and values."""
    algorithm = algorithm_of(link)
    if algorithm == "none":
        return
    given = dict(link.congestion_parameters)
    base = given.pop(BASE_ROUND_TRIP, None)
    if base is not None:
        yield BASE_ROUND_TRIP, base
    defaults = _DCQCN if algorithm == "dcqcn" else {}
    yield "congestion_control", {"algorithm": algorithm, **defaults, **given}


def step_bytes_per_25g(link: LinkTable) -> int | None:
    """From which length on all packets are marked; None: as the switch's profile has it."""
    if link.ecn_step_bytes_per_25g is not None:
        return link.ecn_step_bytes_per_25g
    return _DCTCP_MARKS_BYTES_PER_25G if algorithm_of(link) == "dctcp" else None
