"""What is noted of the machine."""

from __future__ import annotations

import os

import pytest

from rocelab.study.provenance import provenance


def test_a_busy_machine_is_noted_unless_all_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 1.0, 1.0))
    assert any("busy" in note for note in provenance("rocelab run", [], "emulated").notes)
    assert provenance("rocelab run", [], "virtual").notes == ()


def test_network_settings_are_noted_unless_all_is_simulated() -> None:
    network = provenance("rocelab run", [], "emulated").network
    assert network["address_family"] == "IPv4"
    assert network["net.ipv4.tcp_congestion_control"]
    assert provenance("rocelab run", [], "virtual").network == {}
