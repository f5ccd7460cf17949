"""Facts of hosts as `rocelab.hosts.facts` prints them, for tests."""

from __future__ import annotations

from typing import Any


def system(**changed: Any) -> dict[str, Any]:
    usual = {
        "distribution": "Debian GNU/Linux 12 (bookworm)",
        "kernel": "6.1.0-40-amd64",
        "machine": "x86_64",
        "cpu_model": "AMD EPYC 7543",
        "cores": 64,
        "memory_gib": 503.5,
        "iommu": "off",
        "load": 0.1,
        "may_send_frames": False,
    }
    return {**usual, **changed}


def interface(*addresses: str, **changed: Any) -> dict[str, Any]:
    usual = {
        "addresses": list(addresses),
        "addresses6": [],
        "state": "up",
        "mtu_bytes": 9000,
        "rate_mbps": 100_000,
        "kind": "ethernet",
    }
    return {**usual, **changed}


def device(netdev: str = "", *gids: dict[str, Any], link_layer: str = "Ethernet", **changed: Any) -> dict[str, Any]:
    port = {
        "state": "ACTIVE",
        "physical_state": "LinkUp",
        "rate_mbps": 100_000,
        "rate": "100 Gb/sec (4X EDR)",
        "link_layer": link_layer,
        "netdev": netdev,
        "gids": list(gids),
    }
    usual = {"type": "CA", "firmware": "16.35.2000", "model": "MT4121", "driver": "mlx5_core", "ports": {"1": port}}
    return {**usual, **changed}


def gid(index: int, ipv4: str, kind: str) -> dict[str, Any]:
    return {"index": index, "gid": "::ffff", "type": kind, "ipv4": ipv4}


def host(
    interfaces: dict[str, Any] | None = None,
    devices: dict[str, Any] | None = None,
    programs: dict[str, Any] | None = None,
    **of_system: Any,
) -> dict[str, Any]:
    return {
        "system": system(**of_system),
        "interfaces": interfaces or {},
        "devices": devices or {},
        "programs": programs or {},
    }
