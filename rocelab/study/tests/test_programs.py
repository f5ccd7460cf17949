"""The real programs on a real fabric: every method reads what its program prints, and ours agrees with others'."""

from __future__ import annotations

import json
import os
import re
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rocelab import peers
from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LinkProfile
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.launch.reception import Receptions, unavailable
from rocelab.study.execution import Setting
from rocelab.study.pairs import PairExecutor
from rocelab.study.startup import StartupCosts
from rocelab.study.steps import PairStep
from rocelab.tools.base import TESTS, Executable, Method, Test
from rocelab.tools.interconnects import INTERCONNECTS, interconnect
from rocelab.tools.iperf3 import Iperf3
from rocelab.tools.qperf import QperfLatency
from rocelab.tools.sock import Sock

pytestmark = pytest.mark.fabric

DIRECT = LinkProfile("direct", "direct", mtu_bytes=9000)
SLOW = LinkProfile("slow", "bridge", rate_mbps=200)
#: Of so many measurements of real time the median counts.
TIMES = 5
#: Of the rate of a link, what a stream gets at least.
PART = 0.75
#: With each size; under a condition, which no size changes, with one.
METHODS = [
    (size_bytes, name, test, variant)
    for name in INTERCONNECTS
    for test in TESTS
    for variant in interconnect(name).variants(test)
    for size_bytes in (1, 4096, 1 << 20)
    if size_bytes == 4096 or peers.plain_name(peers.name_of(variant))[1] is None
]


@pytest.fixture(scope="module")
def fabric() -> Iterator[emulated.EmulatedFabric]:
    try:
        made = emulated.up([DIRECT, SLOW])
    except FabricError as error:
        pytest.skip(f"no emulated fabric on this machine: {error}")
    with made:
        yield made


@pytest.fixture(scope="module")
def executor(fabric: emulated.EmulatedFabric) -> Iterator[PairExecutor]:
    made = PairExecutor(Setting(fabric, NamespaceLauncher(fabric)))
    yield made
    made.close()


@pytest.fixture
def receptions(fabric: emulated.EmulatedFabric) -> Iterator[Receptions]:
    """What the link receives by, which is as it was afterwards."""
    made = Receptions(fabric.nodes, NamespaceLauncher(fabric))
    yield made
    made.choose(DIRECT.id, peers.USUAL)


def need(*executables: Executable) -> None:
    for executable in executables:
        if executable.path is None:
            pytest.skip(f"{executable.name} is not there: {executable.advice}")


def step(method: Method, test: Test, size_bytes: int, messages: int, link: LinkProfile = DIRECT) -> PairStep:
    return PairStep(
        link=link,
        test=test,
        interconnect="any",
        variant="any",
        method=method,
        size_bytes=size_bytes,
        repetition=0,
        messages=messages,
        message_s=1e-5,
        point_s=0.1,
        time_limit_s=60.0,
    )


def measure(executor: PairExecutor, method: Method, of: PairStep, statistic: str) -> float:
    need(*method.executables)
    done = executor.execute(of, None)
    assert done.reading is not None, done.error
    return next(value.value for value in done.reading.report.values if value.statistic == statistic)


@pytest.mark.parametrize(("size_bytes", "name", "test", "variant"), METHODS)
def test_every_method_works(  # noqa: PLR0917  each is a fixture or a parameter
    executor: PairExecutor, receptions: Receptions, size_bytes: int, name: str, test: Test, variant: str
) -> None:
    method = interconnect(name).methods[test, variant]
    need(*method.executables)
    if reason := unavailable(peers.reception_of(variant)):
        pytest.skip(reason)
    receptions.choose(DIRECT.id, peers.reception_of(variant))
    size_bytes = min(size_bytes, method.size_max_bytes or size_bytes)
    # iperf3 ends all streams with the first, which with a few bytes is before another has begun, or
    # was read.
    many = max(200_000 // size_bytes, min(5_000, (256 << 20) // size_bytes))
    messages = max(50, method.messages_min, many if method.tool == "iperf3" else 0)
    done = executor.execute(step(method, test, size_bytes, messages), None)
    assert done.reading is not None, done.error
    assert done.reading.report.active_s > 0
    assert done.reading.report.moved_bytes > 0
    assert all(value.value > 0 for value in done.reading.report.values)


REAL_TIME = pytest.mark.quiet(reason="it compares latencies of two programs, and other work on the machine delays each")


@pytest.mark.slow
@REAL_TIME
def test_latency_agrees_with_qperf(executor: PairExecutor) -> None:
    qperf, own = QperfLatency(), Sock("latency", "blocking")
    agree(
        lambda: measure(executor, own, step(own, "latency", 1024, 20_000), "mean"),
        lambda: measure(executor, qperf, step(qperf, "latency", 1024, 1), "mean"),
    )


def agree(ours: Callable[[], float], theirs: Callable[[], float | None]) -> None:
    """Both measure the same, in turns. None: nothing was measured."""
    pairs = [(ours(), theirs()) for _ in range(TIMES)]
    others = [other for _, other in pairs if other is not None]
    assert others, "the other program measured nothing"
    mine = statistics.median(own for own, _ in pairs)
    assert mine == pytest.approx(statistics.median(others), rel=0.4), pairs


@pytest.mark.slow
@REAL_TIME
@pytest.mark.parametrize("waiting", ["blocking", "busy-poll"])
def test_latency_agrees_with_sockperf(fabric: emulated.EmulatedFabric, executor: PairExecutor, waiting: str) -> None:
    need(Executable("sockperf", package="sockperf"))
    own = Sock("latency", "busy-poll" if waiting == "busy-poll" else "blocking")
    agree(
        lambda: measure(executor, own, step(own, "latency", 64, 20_000), "median"),
        lambda: sockperf_median_us(fabric, spins=waiting == "busy-poll"),
    )


def sockperf_median_us(fabric: emulated.EmulatedFabric, *, spins: bool) -> float | None:
    """What sockperf measures; None where it heard nothing from its server, which happens to it on a busy machine."""
    launcher = NamespaceLauncher(fabric)
    address = fabric.nodes[1].addresses["direct"]
    common = ["--tcp", "-i", address, "-p", "17000", *(["--nonblocked"] if spins else [])]
    # The same processors as ours: others may be busier, or idler.
    cores = sorted(os.sched_getaffinity(0))
    server = launcher.start(fabric.nodes[1], ["sockperf", "server", *common], cores=cores[:2][-1:])
    try:
        launcher.wait_until_listening(fabric.nodes[1], server, 17000)
        argv = ["sockperf", "ping-pong", *common, "-m", "64", "-t", "1"]
        client = launcher.start(fabric.nodes[0], argv, cores=cores[:1])
        said = client.wait(20).stdout
    finally:
        server.stop()
    if "No messages were received" in said:
        return None
    found = re.search(r"percentile 50\.000 =\s*([0-9.]+)", said)
    assert found is not None, said
    return float(found[1])


def bandwidths(executor: PairExecutor, test: Test, times: int) -> tuple[dict[str, float], float]:
    """The median of what each program finds on a slow link, and the rate of it; Mbps."""
    methods: dict[str, Method] = {
        "iperf3": Iperf3("bandwidth" if test == "bandwidth" else "bidirectional-bandwidth"),
        "blocking": Sock(test, "blocking"),
        "busy-poll": Sock(test, "busy-poll"),
    }
    found = {
        name: statistics.median(
            measure(executor, method, step(method, test, 65536, 160, SLOW), "mean") for _ in range(times)
        )
        for name, method in methods.items()
    }
    return found, 200.0 * (1 if test == "bandwidth" else 2)


BANDWIDTHS = pytest.mark.parametrize("test", ["bandwidth", "bidirectional-bandwidth"])


@BANDWIDTHS
def test_no_program_finds_more_bandwidth_than_a_shaped_link_has(executor: PairExecutor, test: Test) -> None:
    found, limit_mbps = bandwidths(executor, test, 1)
    assert all(0 < value < 1.02 * limit_mbps for value in found.values()), found


@pytest.mark.quiet(reason="other work takes a part of the rate of the link, of which three quarters are wanted")
@BANDWIDTHS
def test_bandwidth_of_a_shaped_link_agrees_with_iperf3(executor: PairExecutor, test: Test) -> None:
    found, limit_mbps = bandwidths(executor, test, TIMES)
    assert all(PART * limit_mbps < value < 1.02 * limit_mbps for value in found.values()), found


def test_reported_cpu_time_is_that_of_the_process(executor: PairExecutor, tmp_path: Path) -> None:
    method = Sock("latency", "busy-poll")
    need(*method.executables)
    done = executor.execute(step(method, "latency", 64, 40_000), tmp_path / "log")
    assert done.reading is not None, done.error
    assert done.reading.report.cpu is not None
    assert 0 < done.reading.report.cpu.client_s <= done.reading.client.cpu_s
    # It also warms up (a tenth) and starts; nothing else costs much.
    assert done.reading.report.cpu.client_s > 0.7 * done.reading.client.cpu_s
    report = json.loads(done.reading.client.stdout)
    assert report["waiting"] == "busy-poll"


@pytest.mark.parametrize("variant", ["send", "send-events"])
def test_cpu_time_of_a_long_stream_is_told_apart_from_its_start(executor: PairExecutor, variant: str) -> None:
    method = interconnect("soft-roce").methods["cpu-use", variant]
    need(*method.executables)
    of = step(method, "cpu-use", 65536, 20_000)
    startup = StartupCosts(executor.cpu_times, [DIRECT], 65536).of(of)
    done = executor.execute(of, None)
    assert done.reading is not None, done.error
    assert 0.05 < startup.client_s < 1.0, "perftest watches the cycle counter for up to 0.22 s"
    used_s = done.reading.client.cpu_s - startup.client_s
    # Other work stretches the time, not the CPU time. 1.3 GB at 50 GB/s is the least.
    assert 0.026 < used_s < 2.5 * done.reading.report.active_s
