"""Which counters say that packets were lost, paused, marked or sent again, and where they are read."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from rocelab.launch import network_counters


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # mlx5's, by ethtool.
        ("rx_prio3_pause", "paused"),
        ("rx_prio3_pause_duration", None),
        ("tx_pause_storm_warning_events", None),
        ("rx_discards_phy", "lost"),
        ("rx_out_of_buffer", "lost"),
        ("rx_ecn_mark", "marked"),
        ("rx_prio3_bytes", None),
        ("rx_vport_rdma_unicast_packets", None),
        # Of RDMA devices: mlx5, rxe and InfiniBand's own.
        ("np_cnp_sent", "marked"),
        ("np_ecn_marked_roce_packets", "marked"),
        ("out_of_sequence", "resent"),
        ("packet_seq_err", "resent"),
        ("local_ack_timeout_err", "resent"),
        ("rnr_nak_retry_err", "resent"),
        ("out_of_seq_request", "resent"),
        ("completer_retry_err", "resent"),
        ("port_xmit_wait", "paused"),
        ("port_xmit_discards", "lost"),
        ("port_rcv_errors", "lost"),
        ("port_rcv_data", None),
        # The kernel's.
        ("RetransSegs", "resent"),
        ("RcvbufErrors", "lost"),
        ("InCEPkts", "marked"),
        ("rx_dropped", "lost"),
        ("tx_errors", "lost"),
    ],
)
def test_a_counter_is_known_by_its_name(name: str, kind: str | None) -> None:
    assert network_counters.kind_of(name) == kind


def test_the_kernels_counters_of_a_process_are_read() -> None:
    found = network_counters.read("self", "lo")
    assert {"tcp.RetransSegs", "udp.RcvbufErrors", "ipext.InCEPkts", "interface.rx_dropped"} <= set(found)


def test_a_datagram_that_finds_no_room_is_counted() -> None:
    before = network_counters.read("self", "lo")["udp.RcvbufErrors"]
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as full, socket.socket(type=socket.SOCK_DGRAM) as sender:
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        full.bind(("127.0.0.1", 0))
        for _ in range(100):
            sender.sendto(bytes(1000), full.getsockname())
    assert network_counters.read("self", "lo")["udp.RcvbufErrors"] > before


def test_a_devices_counters_are_read_but_for_what_is_no_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_counters, "DEVICES", tmp_path)
    port = tmp_path / "mlx5_0" / "ports" / "2"
    for name, text in (
        ("counters/port_xmit_wait", "7\n"),
        ("counters/port_xmit_data", "99\n"),
        ("hw_counters/out_of_buffer", "3\n"),
        ("hw_counters/rnr_nak_retry_err", "N/A (no PMA)\n"),
    ):
        (port / name).parent.mkdir(parents=True, exist_ok=True)
        (port / name).write_text(text)
    found = network_counters.read("self", "lo", "mlx5_0", 2)
    of_device = {name: count for name, count in found.items() if name.startswith("device.")}
    assert of_device == {"device.port_xmit_wait": 7, "device.out_of_buffer": 3}


def test_a_missing_interface_or_process_has_no_counters() -> None:
    assert not [name for name in network_counters.read("self", "none9") if name.startswith("interface.")]
    assert network_counters.read(2**30, "lo") == {}
