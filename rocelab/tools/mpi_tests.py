"""What is known of the tests of the MPI level: what they are about, and about how long they take."""

from __future__ import annotations

import re
from typing import Final

from rocelab.results import MESH_TEST
from rocelab.tools.base import JobRequest

#: Names of tests as OMB's programs have them, without `osu_`.
NAME: Final = re.compile(r"[a-z][a-z0-9_]*")
_BANDWIDTH: Final = re.compile(r"(^|_)(bi)?bw($|_)|^mbw_mr$|^(uni|bi)band$|^(in|out)cast$|^mesh$", re.IGNORECASE)
_TWO_SIDED: Final = re.compile(r"latency|multi_lat|pingpong|pingping|sendrecv|exchange|_lat$", re.IGNORECASE)
#: As OMB has it: how many messages are on their way at once in tests of bandwidth.
_WINDOW: Final = 64
_LARGE_BYTES: Final = 8192
#: The schedule of IMB, which its tests have in rocelab-mpi, too.
_IMB: Final = frozenset({"pingpong", "pingping", "sendrecv", "exchange", "uniband", "biband"})
_IMB_REPETITIONS: Final = 1000
_IMB_VOLUME_BYTES: Final = 40 << 20
#: No message of a chosen size moves in these.
_WITHOUT_SIZES: Final = frozenset({"barrier", "ibarrier", "barrier_persistent", "init", "hello"})
#: Those of them that are not about the time of one call again and again.
_STARTS: Final = {"init": "init_us", "hello": "contact_us"}
#: Only the guess of how long a step takes depends on these.
_ASSUMED_RATE_MBPS: Final = 8_000.0
_ASSUMED_MESSAGE_US: Final = 10.0


def has_sizes(test: str) -> bool:
    """Whether a test is measured by message size."""
    return test.lower() not in _WITHOUT_SIZES


def main_metric(test: str) -> tuple[str, str]:
    """The metric that a test is about, and its unit."""
    if test in _STARTS:
        return _STARTS[test], "us"
    if test.startswith("overlap"):
        return "overlap_percent", "%"
    return ("bandwidth_mbps", "Mbps") if _BANDWIDTH.search(test) else ("latency_us", "us")


def seconds(test: str, request: JobRequest, rate_mbps: float | None, ranks: int) -> float:
    """About how long a test measures: its iterations, each as long as its messages take one after the other."""
    return sum(_size_seconds(test, request, rate_mbps, ranks, size_bytes or 0) for size_bytes in request.points)


def _size_seconds(test: str, request: JobRequest, rate_mbps: float | None, ranks: int, size_bytes: int) -> float:
    is_large = size_bytes > _LARGE_BYTES
    message_us = _ASSUMED_MESSAGE_US + size_bytes * 8 / (rate_mbps or _ASSUMED_RATE_MBPS)
    if test in _STARTS:
        return 0.0
    if test == MESH_TEST:
        iterations, messages = 10, ranks
    elif _BANDWIDTH.search(test):
        iterations, messages = (20 if is_large else 100), _WINDOW * max(1, ranks // 2)
    elif _TWO_SIDED.search(test):
        iterations, messages = (1000 if is_large else 10_000), 2 * max(1, ranks // 2)
    else:
        iterations, messages = (100 if is_large else 1000), ranks
    if test.lower() in _IMB:
        iterations = max(1, min(_IMB_REPETITIONS, _IMB_VOLUME_BYTES // max(1, size_bytes)))
    count = iterations if request.iterations is None else request.iterations
    return (count + (request.warmup or 0)) * messages * message_us / 1e6
