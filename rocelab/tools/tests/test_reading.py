"""What each tool makes of output that was recorded, and of output that no good run prints."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Literal

import pytest

from rocelab.tools.base import Executable, Method, Output, Request, Test, ToolError
from rocelab.tools.iperf3 import Iperf3
from rocelab.tools.perftest import Operation, Perftest
from rocelab.tools.qperf import QperfLatency
from rocelab.tools.sock import Sock

RECORDED = Path(__file__).parent / "recorded"
URXE = Executable("/opt/urxe")
GOOD = Output("", "", 0)


def request(size_bytes: int, messages: int) -> Request:
    return Request(size_bytes, messages, "10.80.0.2", "eth0", "eth1", 18000)


def recorded(name: str) -> Output:
    return Output((RECORDED / name).read_text(), "", 0)


def values(method: Method, asked: Request, client: Output) -> dict[tuple[str, str], float]:
    reading = method.read(asked, client, GOOD)
    return {(value.metric, value.statistic): value.value for value in reading.values}


def perftest(operation: Operation, test: Test, cycles_per_us: float | None = 2300.0) -> Perftest:
    return Perftest(operation, test, URXE, cycles_per_us=cycles_per_us)


def test_perftest_latency_in_cycles_becomes_microseconds() -> None:
    found = values(perftest("send", "latency"), request(64, 5924), recorded("ib_send_lat_cycles.txt"))
    assert found["latency_us", "median"] == pytest.approx(9793 / 2300)
    assert found["latency_us", "min"] == pytest.approx(8362 / 2300)
    assert found["latency_us", "p99"] == pytest.approx(968945 / 2300)


def test_perftest_latency_without_a_cycle_rate_is_microseconds() -> None:
    found = values(perftest("send", "latency", None), request(64, 5924), recorded("ib_send_lat_cycles.txt"))
    assert found["latency_us", "median"] == 9793


def test_a_standard_deviation_of_nan_does_not_spoil_the_rest() -> None:
    found = values(perftest("read", "latency"), request(64, 5924), recorded("ib_read_lat_cycles.txt"))
    assert found["latency_us", "median"] == pytest.approx(52806 / 2300)


def test_queue_pairs_share_the_messages() -> None:
    many = Perftest("write", "bandwidth", URXE, queue_pairs=200)
    for asked, each in ((20_000, 100), (7, 5)):
        words = list(many.client(request(65536, asked)))
        assert words[words.index("-n") + 1] == str(each)
    line = " 65536      20000            0.00               388.40             0.006214\n"
    reading = many.read(request(65536, 20_000), Output(line, "", 0), GOOD)
    assert reading.moved_bytes == 20_000 * 65536


def test_time_under_way_is_a_round_trip_a_message() -> None:
    send = perftest("send", "latency").read(request(64, 5924), recorded("ib_send_lat_cycles.txt"), GOOD)
    assert send.active_s == pytest.approx(43404.72 / 2300 * 2 * 5924 / 1e6)
    assert send.moved_bytes == 2 * 5924 * 64
    read = perftest("read", "latency").read(request(64, 5924), recorded("ib_read_lat_cycles.txt"), GOOD)
    assert read.active_s == pytest.approx(140857.18 / 2300 * 5924 / 1e6)


def test_perftest_bandwidth_uses_the_column_with_more_digits() -> None:
    write = values(perftest("write", "bandwidth"), request(4096, 10994), recorded("ib_write_bw.txt"))
    assert write["bandwidth_mbps", "mean"] == pytest.approx(732.72 * 2**20 * 8 / 1e6)
    line = " 1       20000            0.00               0.95 \t\t   1.000000\n"
    small = values(perftest("send", "bandwidth"), request(1, 20000), Output(line, "", 0))
    assert small["bandwidth_mbps", "mean"] == pytest.approx(8.0)
    assert small["message_rate_per_s", "mean"] == pytest.approx(1e6)


def test_perftest_bidirectional_counts_both_ways() -> None:
    reading = perftest("send", "bidirectional-bandwidth").read(
        request(65536, 735), recorded("ib_send_bw_bidirectional.txt"), GOOD
    )
    assert reading.moved_bytes == 2 * 735 * 65536
    assert reading.active_s == pytest.approx(reading.moved_bytes / (4530.26 * 2**20))


@pytest.mark.parametrize(
    ("asked", "text", "reason"),
    [
        (request(64, 5924), "", "no line for 64 bytes"),
        (request(128, 5924), (RECORDED / "ib_send_lat_cycles.txt").read_text(), "no line for 128 bytes"),
        (request(64, 100), (RECORDED / "ib_send_lat_cycles.txt").read_text(), "100 were asked for"),
        (request(64, 9), " 64 9 1.0 2.0\n", "2 latencies instead of 7"),
        (request(64, 9), " 64 9 0.00 0.00 0.00 0.00 0.00 0.00 0.00\n", "a latency of 0"),
    ],
)
def test_perftest_latency_that_cannot_be_right(asked: Request, text: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        perftest("send", "latency").read(asked, Output(text, "", 0), GOOD)


def test_perftest_bandwidth_that_contradicts_itself() -> None:
    with pytest.raises(ToolError, match="contradicts itself"):
        perftest("send", "bandwidth").read(request(4096, 10), Output(" 4096 10 0.00 100.00 0.100000\n", "", 0), GOOD)


def test_an_end_that_failed_says_why_first() -> None:
    client = Output((RECORDED / "ib_send_lat_cycles.txt").read_text(), "Completion with error\n Failed status 12", 17)
    with pytest.raises(ToolError, match="exit status 17: Completion with error / Failed status 12"):
        perftest("send", "latency").read(request(64, 5924), client, GOOD)
    with pytest.raises(ToolError, match="the server was killed by signal 11: it said nothing"):
        perftest("send", "latency").read(request(64, 5924), recorded("ib_send_lat_cycles.txt"), Output("", "", -11))


def test_perftest_commands_name_the_device_of_each_end() -> None:
    method = perftest("write", "bidirectional-bandwidth")
    assert " ".join(method.client(request(8, 5))) == (
        "/opt/urxe run -- ib_write_bw -d urxe_eth0 -x 0 -F -p 18000 -s 8 -n 5 --noPeak --bidirectional 10.80.0.2"
    )
    assert "-d urxe_eth1" in " ".join(method.server(request(8, 5)))
    assert "10.80.0.2" not in method.server(request(8, 5))


def test_perftest_commands_name_the_address_by_its_index() -> None:
    method = Perftest("send", "latency", URXE, gid_index=1)
    assert "-x 1" in " ".join(method.client(request(64, 5)))
    assert "-x 1" in " ".join(method.server(request(64, 5)))


def test_perftest_commands_over_roce_v1_are_run_so_at_both_ends() -> None:
    method = Perftest("send", "latency", URXE, transport="roce-v1")
    for command in (method.client(request(64, 5)), method.server(request(64, 5))):
        words = " ".join(command)
        assert words.startswith("/opt/urxe run --roce-v1 -- ib_send_lat -d urxe_eth")
        assert " -x 32 " in words


def test_perftest_commands_over_iwarp_connect_by_rdma_cm_at_both_ends() -> None:
    method = Perftest("write", "bandwidth", URXE, rdma_cm=True, transport="iwarp")
    for command in (method.client(request(64, 5)), method.server(request(64, 5))):
        words = " ".join(command)
        assert words.startswith("/opt/urxe run --transport iwarp -- ib_write_bw -d urxe_eth")
        assert " -x 0 " in words
        assert " -R" in words


def test_sock_latency() -> None:
    method = Sock("latency", "blocking")
    reading = method.read(request(64, 4947), recorded("sock_latency.json"), GOOD)
    assert {value.statistic: value.value for value in reading.values}["median"] == 19.015
    assert reading.cpu is not None
    assert reading.cpu.client_s == 0.143919


def test_sock_bandwidth_both_ways() -> None:
    reading = Sock("bidirectional-bandwidth", "blocking").read(
        request(1024, 12425), recorded("sock_bidirectional.json"), GOOD
    )
    assert reading.moved_bytes == 2 * 12425 * 1024
    assert reading.values[0].value == pytest.approx(reading.moved_bytes * 8 / reading.active_s / 1e6, rel=1e-6)


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"messages": "many"}'])
def test_sock_output_that_is_no_report(text: str) -> None:
    with pytest.raises(ToolError, match="rocelab-sock"):
        Sock("latency", "blocking").read(request(64, 4947), Output(text, "", 0), GOOD)


POLLED = '"busy_poll_us": 100, "prefer_busy_poll": true, "napi_id": 8200, '


@pytest.mark.parametrize(
    ("kernel_poll", "said", "reason"),
    [
        ("none", "", None),
        ("prefer", POLLED, None),
        ("prefer", POLLED.replace("true", "false"), "the client's connection has SO_BUSY_POLL"),
        ("prefer", "", "the client's connection has SO_BUSY_POLL"),
        ("prefer", POLLED.replace("8200", "null"), "the client's packets did not come by NAPI"),
        ("poll", POLLED.replace("true", "false"), None),
        ("poll", POLLED.replace("100", "0"), "the client's connection has SO_BUSY_POLL"),
    ],
)
def test_sock_counts_only_with_what_the_kernel_was_to_poll(
    kernel_poll: Literal["none", "poll", "prefer"], said: str, reason: str | None
) -> None:
    method = Sock("latency", "blocking", kernel_poll=kernel_poll)
    output = recorded("sock_latency.json")
    output = dataclasses.replace(output, stdout=output.stdout.replace('"elapsed_s"', f'{said}"elapsed_s"'))
    if reason is not None:
        with pytest.raises(ToolError, match=reason):
            method.read(request(64, 4947), output, GOOD)
        return
    params = method.read(request(64, 4947), output, GOOD).params
    assert params["napi_server"] is (kernel_poll != "none")


def test_sock_report_of_something_else() -> None:
    with pytest.raises(ToolError, match="another size"):
        Sock("latency", "blocking").read(request(65, 4947), recorded("sock_latency.json"), GOOD)


def test_iperf3_counts_what_the_receivers_got() -> None:
    report = json.loads((RECORDED / "iperf3.json").read_text())["end"]
    reading = Iperf3("bandwidth").read(request(1024, 24851), recorded("iperf3.json"), GOOD)
    assert reading.moved_bytes == report["sum_received"]["bytes"] < report["sum_sent"]["bytes"]


def test_iperf3_both_ways_is_the_sum() -> None:
    report = json.loads((RECORDED / "iperf3_bidir.json").read_text())["end"]
    reading = Iperf3("bidirectional-bandwidth").read(request(1024, 19810), recorded("iperf3_bidir.json"), GOOD)
    assert reading.moved_bytes == report["sum_received"]["bytes"] + report["sum_received_bidir_reverse"]["bytes"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("iperf3: parameter error", "no JSON: iperf3: parameter error"),
        ('{"error": "unable to connect"}', "unable to connect"),
        ('{"end": {}}', "lacks"),
    ],
)
def test_iperf3_without_a_result(text: str, reason: str) -> None:
    with pytest.raises(ToolError, match=reason):
        Iperf3("bandwidth").read(request(1024, 24851), Output(text, "", 1), GOOD)


def test_iperf3_that_moved_nothing() -> None:
    report = json.loads((RECORDED / "iperf3.json").read_text())
    report["end"]["sum_received"]["bytes"] = 0
    with pytest.raises(ToolError, match="got nothing"):
        Iperf3("bandwidth").read(request(1024, 24851), Output(json.dumps(report), "", 0), GOOD)


def test_qperf() -> None:
    reading = QperfLatency().read(request(1024, 1), recorded("qperf.txt"), dataclasses.replace(GOOD, exit_status=-15))
    assert reading.values[0].statistic == "mean"
    assert reading.values[0].value == pytest.approx(47.032)


@pytest.mark.parametrize("output", [Output("tcp_lat:\n", "", 0), Output("", "failed to connect", 1)])
def test_qperf_without_a_result(output: Output) -> None:
    with pytest.raises(ToolError):
        QperfLatency().read(request(1024, 1), output, GOOD)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (
            "Correlation coefficient r^2: 0.71 < 0.9\n",
            "could not tell the frequency of the processor: other work",
        ),
        ("out of luck\n", "reports a bandwidth of 0: out of luck"),
    ],
)
def test_perftest_without_a_bandwidth_says_why(said: str, why: str) -> None:
    line = " 4096       50               0.00               0.00 \t\t   0.000000\n"
    with pytest.raises(ToolError, match=why):
        perftest("write", "bandwidth").read(request(4096, 50), Output(line, said, 0), GOOD)
