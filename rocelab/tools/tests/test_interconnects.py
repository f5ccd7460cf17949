"""The methods that studies can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from rocelab import peers
from rocelab.tools import interconnects, sock
from rocelab.tools.base import TESTS, Executable, own_program
from rocelab.tools.beside import Wrapped
from rocelab.tools.interconnects import INTERCONNECTS, interconnect
from rocelab.tools.perftest import Perftest


@pytest.mark.parametrize("name", INTERCONNECTS)
@pytest.mark.parametrize("test", TESTS)
def test_every_interconnect_has_every_test(name: str, test: str) -> None:
    assert interconnect(name).variants(test)


def test_tcp_is_measured_both_ways_of_waiting() -> None:
    for test in TESTS:
        assert {"blocking", "busy-poll"} <= set(interconnect("tcp").variants(test))


def test_every_program_over_iwarp_connects_by_rdma_cm() -> None:
    measured = interconnect(peers.SOFT_IWARP)
    programs = [each.method if isinstance(each, Wrapped) else each for each in measured.methods.values()]
    assert all(isinstance(each, Perftest) and each.rdma_cm and each.transport == "iwarp" for each in programs)
    # RDMA-CM chooses the path MTU, and the device has one GID.
    assert not [variant for _, variant in measured.methods if "mtu" in variant or "ipv6" in variant]


@pytest.mark.parametrize("name", [peers.SOFT_IWARP, "iwarp", "siw"])
def test_over_iwarp_no_stream_waits_by_events(name: str) -> None:
    assert {test for test, variant in interconnect(name).methods if "events" in variant} == {"latency"}


def test_methods_state_the_test_they_are_listed_under() -> None:
    for name in INTERCONNECTS:
        for (test, _), method in interconnect(name).methods.items():
            measured = method.method if isinstance(method, Wrapped) else method
            assert getattr(measured, "test", "latency") == test


def test_tcps_of_a_polling_kernel_have_a_link_that_it_can_poll() -> None:
    wanted = {"none": "usual", "poll": "napi", "prefer": "napi-deferred"}
    for (_, variant), method in interconnect("tcp").methods.items():
        measured = method.method if isinstance(method, Wrapped) else method
        kernel_poll = measured.kernel_poll if isinstance(measured, sock.Sock) else "none"
        assert peers.reception_of(variant) == wanted[kernel_poll]


def test_every_tcp_of_a_comparison_is_measurable_and_has_a_name() -> None:
    for name in peers.TCPS["network"]:
        assert ("bandwidth", name) in interconnect("tcp").methods
        # One that has no words of its own is called by its name, dashes and all.
        assert "-" not in peers.title(name).replace("busy-polling", "")


def test_the_environment_names_urxe(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "urxe-of-mine"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("ROCELAB_URXE", str(program))
    assert own_program.__wrapped__("urxe").name == str(program)
    monkeypatch.setenv("ROCELAB_SOCK", str(program))
    assert own_program.__wrapped__("rocelab-sock").name == str(program)


def test_a_missing_program_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    missing = Executable("ib_send_lat", package="perftest")
    assert missing.path is None
    assert missing.advice == "apt-get install perftest"
    assert "make" in own_program.__wrapped__("urxe").advice


def test_the_cycle_counter_runs_at_a_plausible_rate() -> None:
    if sock.program().path is None:
        pytest.skip("SKIPPED: rocelab-sock is not built (make -C bench)")
    rate = interconnects.cycles_per_us.__wrapped__()
    assert rate is None or 10 < rate < 10_000
