"""What starts cost is told apart by what is started."""

from __future__ import annotations

import pytest

from rocelab.fabric.base import LinkProfile
from rocelab.study.startup import StartupCosts, StartupError
from rocelab.study.steps import PairStep
from rocelab.tools.base import CpuTime
from rocelab.tools.interconnects import interconnect

DIRECT = LinkProfile("direct", "direct", mtu_bytes=9000)


def _step(name: str, variant: str = "write", congestion_control: str = "") -> PairStep:
    method = interconnect(name).methods["cpu-use", variant]
    return PairStep(
        repetition=0,
        link=DIRECT,
        interconnect=name,
        variant=f"{variant}{congestion_control}",
        test="cpu-use",
        method=method,
        size_bytes=64,
        messages=1000,
        message_s=1e-6,
        point_s=0.1,
        time_limit_s=10.0,
    )


class _Started:
    """Notes what was started; an iWARP server works for longer than others until its client is there."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def __call__(self, step: PairStep) -> CpuTime:
        self.started.append(f"{step.interconnect} {step.variant}")
        return CpuTime(0.25, 0.2 if step.interconnect == "soft-iwarp" else 0.02)


def test_the_start_of_the_same_program_over_another_transport_is_another() -> None:
    costs = StartupCosts(_Started(), [DIRECT], 65536)
    assert costs.of(_step("soft-roce")).server_s == pytest.approx(0.02)
    assert costs.of(_step("soft-iwarp")).server_s == pytest.approx(0.2)


def test_a_start_is_measured_once_for_all_sizes_and_congestion_controls() -> None:
    run = _Started()
    costs = StartupCosts(run, [DIRECT], 65536)
    costs.of(_step("tcp", "blocking", "@cubic"))
    once = len(run.started)
    costs.of(_step("tcp", "blocking", "@default"))
    assert len(run.started) == once > 0


def test_a_start_that_failed_is_not_tried_again() -> None:
    tries = 0

    def fails(_step: PairStep) -> CpuTime:
        nonlocal tries
        tries += 1
        raise StartupError("no device")

    costs = StartupCosts(fails, [DIRECT], 65536)
    for _ in range(2):
        with pytest.raises(StartupError, match="no device"):
            costs.of(_step("soft-roce"))
    assert tries == 1
