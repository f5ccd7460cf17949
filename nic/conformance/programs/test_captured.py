"""The bytes of captures are counted as they are, and a program that fell back to something else is found out."""

from __future__ import annotations

import struct
from pathlib import Path

from .captured import packet_bytes


def _block(kind: int, body: bytes) -> bytes:
    length_bytes = 12 + len(body)
    return struct.pack("<II", kind, length_bytes) + body + struct.pack("<I", length_bytes)


def _packet(length_bytes: int) -> bytes:
    return _block(6, struct.pack("<IIIII", 0, 0, 0, 4, length_bytes) + b"data")


def test_packets_of_all_captures_count_with_their_wire_length(tmp_path: Path) -> None:
    header = _block(0x0A0D0D0A, b"x" * 16) + _block(1, b"x" * 8)
    (tmp_path / "1.pcapng").write_bytes(header + _packet(1000) + _packet(4140))
    (tmp_path / "2.pcapng").write_bytes(header + _packet(70))
    assert packet_bytes(tmp_path) == 1000 + 4140 + 70


def test_a_last_packet_that_is_cut_off_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "1.pcapng").write_bytes(_packet(1000) + _packet(2000)[:-6])
    assert packet_bytes(tmp_path) == 1000


def test_no_capture_is_no_byte(tmp_path: Path) -> None:
    assert packet_bytes(tmp_path) == 0
