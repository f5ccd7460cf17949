"""What rocelab says of its own simulator: it agrees with what was measured, or it does not."""

from __future__ import annotations

from typing import Any

import pytest

from rocelab.claims import Verdict
from rocelab.claims.tests.simulated import series, verdict_of
from rocelab.claims.tests.test_claims import repeated
from rocelab.results import Sample

SIZES = [64 << bit for bit in range(17)]


def both(latency_times: float, bandwidth_times: float) -> list[Sample]:
    """Measured Soft RoCE, and what is simulated: so many times as much at one of the sizes."""
    made: list[Sample] = []
    for test, metric, times in (
        ("latency", "latency_us", latency_times),
        ("bandwidth", "bandwidth_mbps", bandwidth_times),
    ):
        of: dict[str, Any] = {"link": "direct", "test": test, "metric": metric, "variant": "send"}
        for size in SIZES:
            made += repeated(float(size), size_bytes=size, interconnect="soft-roce", **of)
        # The best of the repetitions is what an undisturbed machine does.
        best = 0.99 if test == "latency" else 1.01
        made += series(
            {size: best * size * (times if size == 4096 else 1.0) for size in SIZES}, interconnect="urxe-udp", **of
        )
    return made


@pytest.mark.parametrize(
    ("latency_times", "bandwidth_times", "verdict"),
    [
        (1.1, 0.9, Verdict.REPRODUCED),
        (1.3, 1.0, Verdict.CONTRADICTED),
        (0.8, 1.0, Verdict.CONTRADICTED),
        (1.0, 1.3, Verdict.CONTRADICTED),
        (1.0, 0.8, Verdict.CONTRADICTED),
    ],
)
def test_a_simulator_that_is_off_at_one_size_contradicts(
    latency_times: float, bandwidth_times: float, verdict: Verdict
) -> None:
    assert verdict_of("K1", both(latency_times, bandwidth_times)).verdict is verdict
