"""From what the programs and the kernel say to rows."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import pytest
from rocelab.tools.base import Output, Request, ToolError

import sharing
import sharing_stand
from sharing_stand import SharingError, Snapshot
from sharing_ucx import UcxThreads

# Of ss of iproute2 6.1, shortened: the data connection, and the one by which the ends talk.
SOCKETS = """\
ESTAB 279616 0 [::ffff:10.80.0.2]:18002 [::ffff:10.80.0.1]:50946 users:(("rocelab-sock",pid=3,fd=5)) cubic \
bytes_sent:1 bytes_acked:1 bytes_received:1000 segs_out:341
ESTAB 0 0 [::ffff:10.80.0.2]:18002 [::ffff:10.80.0.1]:50932 users:(("rocelab-sock",pid=3,fd=4)) cubic bytes_received:62
ESTAB 0 0 [::ffff:10.80.0.2]:18001 [::ffff:10.80.0.1]:50930 users:(("ib_send_bw",pid=4,fd=4)) cubic bytes_received:458
"""


def verbs(packets: int, duplicates: int) -> str:
    counters = {"rx_bytes": packets * 1040, "rx_packets": packets, "duplicate_request": duplicates}
    return json.dumps({"processes": [{"pid": 4, "devices": [{"device": "urxe_eth0", "counters": counters}]}]})


def test_a_snapshot_counts_payload_that_came_for_the_first_time() -> None:
    (taken,) = sharing_stand.snapshots(f"@time 12.5\n{verbs(10, 2)}\n@tcp\n{SOCKETS}")
    assert taken == Snapshot(12.5, {3: 1062, 4: 8 * 1024})


def test_a_watch_has_a_snapshot_for_each_look_without_devices() -> None:
    said = f"@time 1.0\n\n@tcp\n{SOCKETS}@time 2.0\n\n@tcp\n"
    assert [(each.at_s, sorted(each.bytes_by_pid)) for each in sharing_stand.snapshots(said)] == [
        (1.0, [3, 4]),
        (2.0, []),
    ]


def test_rates_are_between_each_snapshot_and_the_next() -> None:
    taken = [Snapshot(0.0, {7: 0, 8: 0}), Snapshot(1.0, {7: 125_000, 8: 0}), Snapshot(3.0, {7: 625_000, 8: 250_000})]
    assert sharing_stand.rates_mbps(taken, [7, 8]) == [[1.0, 2.0], [0.0, 1.0]]


def test_a_stream_that_ended_is_no_rate_of_zero() -> None:
    with pytest.raises(SharingError, match="1 of 2 streams had ended"):
        sharing_stand.rates_mbps([Snapshot(0.0, {7: 0, 8: 0}), Snapshot(1.0, {7: 9})], [7, 8])


def test_shares_are_of_what_all_streams_received() -> None:
    cells = {
        metric: value for _, metric, _, value in sharing._shares(sharing.Shared(1, 2), [[10, 30], [50, 10], [50, 50]])
    }
    assert cells == {
        "share of Soft RoCE": 20.0,
        "least share": 20.0,
        "most share": 50.0,
        "total": 100.0,
        "least in a second": 10,
    }


def test_a_datagram_that_never_came_back_is_lost_no_round_trip() -> None:
    cells = {metric: value for _, metric, _, value in sharing._queue([1.0, None, 3.0, 2.0])}
    assert cells == {"median": 2.0, "99 %": 2.0, "lost": 25.0}
    with pytest.raises(SharingError, match="starved"):
        list(sharing._queue([None, None]))


def test_a_step_that_fails_is_named_and_the_others_go_on() -> None:
    key = sharing.Key("a", "b", "c", "us")
    values = iter((3.0, 1.0))

    def good() -> Mapping[sharing.Key, float]:
        return {key: next(values)}

    def bad() -> Mapping[sharing.Key, float]:
        raise ToolError("it hung")

    found, failures = sharing.measured([("bad", bad), ("good", good)], 2, lambda _: None)
    assert found == {key: [3.0, 1.0]}
    assert failures == ["bad, repetition 1: it hung", "bad, repetition 2: it hung"]


def test_a_row_has_the_median_the_least_and_the_most() -> None:
    file = io.StringIO()
    sharing.write(file, "2026-01-01; here", {sharing.Key("SEND, IPv4", "64 B", "latency", "us"): [3.0, 1.0, 12345.6]})
    assert file.getvalue().splitlines() == [
        "# 2026-01-01; here",
        "what,condition,metric,unit,median,low,high,repetitions",
        '"SEND, IPv4",64 B,latency,us,3,1,12346,3',
    ]


# Of ucx_perftest 1.13: one thread, and two.
ONE = "Final:                  3000     37.447    43.378    43.378     1440.82    1440.82       23053       23053\n"
TWO = "Final:                  3000                       259.922                 480.91                    7695\n"


@pytest.mark.parametrize(("said", "mib_per_s"), [(ONE, 1440.82), (TWO, 480.91)])
def test_ucx_tells_the_bandwidth_of_all_threads(said: str, mib_per_s: float) -> None:
    request = Request(65536, 3000, "10.80.0.2", "eth0", "eth1", 18000)
    reading = UcxThreads(2, "soft-roce").read(request, Output(said, "", 0), Output("", "", 0))
    assert reading.values[0].value == pytest.approx(mib_per_s * (1 << 20) * 8 / 1e6)
    with pytest.raises(ToolError, match="no final line: it waits"):
        UcxThreads(2, "soft-roce").read(request, Output("it waits", "", 0), Output("", "", 0))


def test_ucx_is_kept_to_one_way_and_one_device() -> None:
    request = Request(65536, 3000, "10.80.0.2", "eth0", "eth1", 18000)
    verbs, tcp = (" ".join(UcxThreads(4, over).client(request)) for over in ("soft-roce", "tcp"))
    assert verbs.startswith("env UCX_TLS=rc_verbs,ud_verbs UCX_NET_DEVICES=urxe_eth0:1 ")
    settings, program = tcp.split(" ucx_perftest ")
    assert settings == "env UCX_TLS=tcp UCX_NET_DEVICES=eth0"
    assert program == "-T 4 -p 18000 10.80.0.2 -t tag_bw -s 65536 -n 750 -w 10"
    assert "UCX_NET_DEVICES=urxe_eth1:1" in UcxThreads(4, "soft-roce").server(request)
