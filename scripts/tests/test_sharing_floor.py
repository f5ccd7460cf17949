"""What is read of the bare loop."""

from __future__ import annotations

import pytest

import sharing_floor
from sharing_stand import SharingError

REPORT = """\
MTU 9000, messages of 1048576 bytes in datagrams of 64, window 524288 bytes; GB/s, 10 rounds of 50ms
                                      quarter   median     best
datagrams alone                          0.49     0.94     0.95
and the sender's ICRC                    0.43     0.85     0.86
and the receiver's ICRC                  0.43     0.84     0.86
and copied to its place                  0.39     0.46     0.46
  or received in place                   0.41     0.44     0.45
  and sent from one piece of memory      0.63     0.64     0.67
  and with its memory held               0.41     0.43     0.44
"""


def test_the_fastest_way_counts_that_does_all_that_a_packet_needs() -> None:
    assert sharing_floor.best_mbps(REPORT) == pytest.approx(0.64 * 8000)


def test_a_report_without_rates_is_an_error() -> None:
    with pytest.raises(SharingError, match="printed none of its rates"):
        sharing_floor.best_mbps("thread 'main' panicked")


EXCHANGES = """\
65536 bytes, half a round trip in ns, 20 rounds of 100 exchanges
                     best  quarter   median
as frames           19417    19872    20135
as datagrams        21987    22582    22974
"""


def test_an_exchange_has_a_time_for_each_way() -> None:
    assert sharing_floor.latencies_us(EXCHANGES) == {"frames": 20.135, "datagrams": 22.974}


def test_a_report_without_times_is_an_error() -> None:
    with pytest.raises(SharingError, match="printed none of its times"):
        sharing_floor.latencies_us("a packet was lost")
