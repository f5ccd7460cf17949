"""Incast at a small scale: marks of the switch are heeded, and no sender is starved."""

from __future__ import annotations

import shutil

import pytest

from rocelab.fabric.base import FabricError

from .incast import can_mark, incast

pytestmark = [pytest.mark.fabric, pytest.mark.timeout(600)]


def test_marks_come_back_as_notifications_and_all_get_through() -> None:
    if why := can_mark():
        pytest.skip(why)
    if shutil.which("ib_write_bw") is None:
        pytest.skip("there is no ib_write_bw; install the Debian package perftest")
    try:
        outcome = incast(4, rate_mbps=100.0, buffer_bytes=32 << 10, seconds=3, marks=True)
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    assert outcome.marked >= outcome.notified > 0
    # Figures of a quiet machine are in docs/congestion.md. Go-back-N that does not hold back
    # collapses far below this.
    assert outcome.of_bottleneck > 0.4
    assert min(outcome.rates_mbps) > 0
    assert outcome.jain > 0.5, outcome
