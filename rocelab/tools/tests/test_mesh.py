"""The programs of a mesh: their command lines, and what is made of their output."""

from __future__ import annotations

import dataclasses
import json

import pytest

from rocelab.tools.base import Executable, Output, ToolError
from rocelab.tools.mesh import Iperf3Mesh, MeshRequest, PerftestMesh, SockMesh
from rocelab.tools.tests.test_reading import GOOD, RECORDED, recorded

REQUEST = MeshRequest(
    size_bytes=16384,
    parallel=2,
    depth=4,
    measured_s=2,
    margin_s=1,
    traffic_class=136,
    server_address="10.80.0.2",
    client_interface="eth0",
    server_interface="eth1",
    port=20000,
)
WRITE = PerftestMesh(Executable("/opt/urxe"))


def test_perftest_is_given_the_options_of_the_source() -> None:
    client = list(WRITE.client(REQUEST))
    assert client[:4] == ["/opt/urxe", "run", "--", "ib_write_bw"]
    for option in (["-q", "2"], ["-D", "4"], ["-f", "1"], ["-t", "4"], ["-d", "urxe_eth0"]):
        assert client[client.index(option[0]) + 1] == option[1]
    assert "--tclass=136" in client
    assert client[-1] == "10.80.0.2"
    assert "urxe_eth1" in WRITE.server(REQUEST)


def test_sends_have_a_program_of_their_own_that_does_not_sleep_first() -> None:
    send = dataclasses.replace(WRITE, operation="send")
    assert list(send.client(REQUEST))[3] == send.tool == "ib_send_bw"
    assert (send.head_start_s, WRITE.head_start_s) == (0.0, 1.0)


def test_rocelab_sock_is_told_the_margins_and_its_receiver_is_read() -> None:
    client = list(SockMesh("busy-poll").client(REQUEST))
    for option in (["--seconds", "2"], ["--margin", "1"], ["--size", "16384"], ["--waiting", "busy-poll"]):
        assert client[client.index(option[0]) + 1] == option[1]
    report = {"server": {"elapsed_s": 1.99}, "bandwidth_mbps": 812.5}
    read = SockMesh("blocking").read_mbps
    assert read(REQUEST, Output(json.dumps(report), "", 0), GOOD) == 812.5
    report["server"] = {"elapsed_s": 0.5}
    with pytest.raises(ToolError, match=r"measured 0\.5 s between the margins instead of 2"):
        read(REQUEST, Output(json.dumps(report), "", 0), GOOD)
    with pytest.raises(ToolError, match="lacks 'server'"):
        read(REQUEST, Output("{}", "", 0), GOOD)
    with pytest.raises(ToolError, match="printed no report: nonsense"):
        read(REQUEST, Output("nonsense", "", 0), GOOD)


def test_perftest_reports_what_its_middle_moved() -> None:
    assert WRITE.read_mbps(REQUEST, recorded("ib_write_bw_mesh.txt"), GOOD) == pytest.approx(1.91 * 2**20 * 8 / 1e6)


def test_messages_tell_where_two_decimals_are_too_few() -> None:
    slow = recorded("ib_write_bw_mesh.txt").stdout.replace("1.91", "0.07").replace(" 246 ", " 9 ")
    assert WRITE.read_mbps(REQUEST, Output(slow, "", 0), GOOD) == pytest.approx(9 * 16384 * 8 / 2 / 1e6)


def test_messages_tell_if_perftest_missed_the_end_of_its_middle() -> None:
    missed = recorded("ib_write_bw_mesh.txt").stdout.replace("1.91", "0.00").replace("0.000122", "0.000000")
    assert WRITE.read_mbps(REQUEST, Output(missed, "", 0), GOOD) == pytest.approx(246 * 16384 * 8 / 2 / 1e6)
    nothing = missed.replace(" 246 ", " 0 ")
    assert WRITE.read_mbps(REQUEST, Output(nothing, "", 0), GOOD) == 0.0


def test_the_receiver_of_iperf3_is_read_between_the_margins() -> None:
    server = recorded("iperf3_server.json")
    mbps = (2271912 + 2284944) * 8 / (2.000021 - 0.000078) / 1e6
    assert Iperf3Mesh().read_mbps(REQUEST, GOOD, server) == pytest.approx(mbps, rel=1e-3)


def test_too_little_between_the_margins_is_no_measurement() -> None:
    report = json.loads((RECORDED / "iperf3_server.json").read_text())
    report["intervals"] = report["intervals"][:1]
    with pytest.raises(ToolError, match="0 s between the margins instead of 2"):
        Iperf3Mesh().read_mbps(REQUEST, GOOD, Output(json.dumps(report), "", 0))
    with pytest.raises(ToolError, match="printed no JSON: unable to connect"):
        Iperf3Mesh().read_mbps(REQUEST, GOOD, Output("", "unable to connect", 0))


@pytest.mark.parametrize("method", [WRITE, Iperf3Mesh(), SockMesh("blocking")])
def test_a_program_that_failed_is_told_with_its_last_words(method: PerftestMesh | Iperf3Mesh | SockMesh) -> None:
    failed = dataclasses.replace(GOOD, exit_status=1, stderr="no route to host")
    with pytest.raises(ToolError, match="the client ended with exit status 1: no route to host"):
        method.read_mbps(REQUEST, failed, GOOD)
