"""What a host says of itself: system, network interfaces, RDMA devices, programs. A program for hosts.

Usage: facts.py [--programs] PROGRAM...

With --programs it is about these and nothing else. It prints one JSON object and fails for nothing: what cannot be
found out is left out. It is sent to hosts as text, so it needs Python 3.9 and nothing else, least of all root. Names
under /sys are as in the kernel's Documentation/ABI.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import platform
import re
import resource
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_LIMIT_S = 10
#: linux/sockios.h and linux/ethtool.h.
_SIOCETHTOOL = 0x8946
_GDRVINFO = 0x03
_GPAUSEPARAM = 0x12
#: /sys/class/net/*/type of IP over InfiniBand, linux/if_arp.h.
_IPOIB = "32"
#: How a program is asked for its version, where --version is not it.
_VERSION_OPTIONS = {"ofed_info": ["-s"], "ssh": ["-V"]}
_PCI_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
#: Where settings of quality of service show, by program; the interface's name comes last.
_QOS = (
    ("dcb pfc", ["dcb", "-j", "pfc", "show", "dev"]),
    ("dcb ets", ["dcb", "-j", "ets", "show", "dev"]),
    ("mlnx_qos", ["mlnx_qos", "-i"]),
)


def main() -> None:
    """Print everything."""
    if sys.argv[1:2] == ["--programs"]:
        print(json.dumps(programs(sys.argv[2:])))  # noqa: T201, that is its answer
        return
    devices = rdma_devices()
    found = {
        "system": system(),
        "interfaces": interfaces({port["netdev"] for device in devices.values() for port in device["ports"].values()}),
        "devices": devices,
        "programs": programs(sys.argv[1:]),
    }
    print(json.dumps(found))  # noqa: T201, that is its answer


def system() -> dict[str, Any]:
    """The machine and its kernel."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    sockets = {_read(path) for path in Path("/sys/devices/system/cpu").glob("cpu*/topology/physical_package_id")}
    governors = {_read(path) for path in Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")}
    return _known(
        {
            "distribution": _distribution(),
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cpu_model": _cpu_model(),
            "cores": os.cpu_count(),
            "sockets": len(sockets - {None}) or None,
            "numa_nodes": len([*Path("/sys/devices/system/node").glob("node[0-9]*")]) or None,
            "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
            "governor": ", ".join(sorted(each for each in governors if each)) or None,
            "iommu": _iommu(),
            "memlock_kib": None if soft == resource.RLIM_INFINITY else soft >> 10,
            "hugepages": _number(_read("/proc/sys/vm/nr_hugepages")),
            "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
            "rdma_core": _package_version("libibverbs1", "libibverbs"),
            "ofed": _said(["ofed_info", "-s"]),
            "load": round(os.getloadavg()[0], 2),
            "may_send_frames": _may_send_frames(),
        }
    )


def _distribution() -> str | None:
    for line in (_read("/etc/os-release") or "").splitlines():
        if line.startswith("PRETTY_NAME="):
            return line.partition("=")[2].strip('"')
    return None


def _cpu_model() -> str | None:
    for line in (_read("/proc/cpuinfo") or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _iommu() -> str:
    """``off``, or how DMA is translated: each translation costs a NIC time."""
    if not [*Path("/sys/class/iommu").glob("*")]:
        return "off"
    words = (_read("/proc/cmdline") or "").split()
    return "pass-through" if "iommu=pt" in words or "iommu.passthrough=1" in words else "translating"


def _may_send_frames() -> bool:
    """Whether AF_PACKET is allowed (CAP_NET_RAW), by which urxe goes past the IP layer."""
    try:
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0).close()
    except OSError:
        return False
    return True


def _package_version(debian: str, red_hat: str) -> str | None:
    return _said(["dpkg-query", "-W", "-f", "${Version}", debian]) or _said(
        ["rpm", "-q", "--qf", "%{VERSION}", red_hat]
    )


def interfaces(of_devices: set[str]) -> dict[str, dict[str, Any]]:
    """Interfaces with an address, and those of RDMA devices, by name. The loopback is none."""
    addresses: dict[str, dict[str, list[str]]] = {}
    for link in _json(["ip", "-j", "addr", "show"]) or []:
        families: dict[str, list[str]] = {"inet": [], "inet6": []}
        for each in link.get("addr_info", []):
            if each.get("scope") == "global" and each["family"] in families:
                families[each["family"]].append(f"{each['local']}/{each['prefixlen']}")
        addresses[link["ifname"]] = families
    found = {}
    for path in sorted(Path("/sys/class/net").glob("*")):
        families = addresses.get(path.name, {"inet": [], "inet6": []})
        wanted = any(families.values()) or path.name in of_devices
        if wanted and _read(path / "type") != "772":  # the loopback, linux/if_arp.h
            found[path.name] = _interface(path, families)
    return found


def _interface(path: Path, families: dict[str, list[str]]) -> dict[str, Any]:
    speed = _number(_read(path / "speed"))
    bond = (path / "master").resolve().name if (path / "master").exists() else None
    return _known(
        {
            "addresses": families["inet"],
            "addresses6": families["inet6"],
            "state": _read(path / "operstate"),
            "mtu_bytes": _number(_read(path / "mtu")),
            # -1 where nothing is known of it, as of virtual ones.
            "rate_mbps": speed if speed and speed > 0 else None,
            "kind": "ipoib" if _read(path / "type") == _IPOIB else "ethernet",
            "bond_of": (_read(path / "bonding/slaves") or "").split() or None,
            "bond_mode": _read(path / "bonding/mode"),
            "member_of": bond,
            "pause": _pause(path.name),
            "qos": _qos(path.name),
            **_driver(path.name),
            **pci(path / "device"),
        }
    )


def _qos(name: str) -> dict[str, str] | None:
    """Priority flow control and traffic classes, by the words of the program that tells."""
    said = {title: _said([*command, name]) for title, command in _QOS if shutil.which(command[0])}
    enabled = [
        f"{point.name} {each.name}"
        for point in Path(f"/sys/class/net/{name}/ecn").glob("roce_*")
        for each in sorted((point / "enable").glob("*"))
        if _read(each) == "1"
    ]
    said["RoCE ECN"] = ", ".join(sorted(enabled)) or None
    return _known(said) or None


def pci(path: Path) -> dict[str, Any]:
    """PCIe of a device: what the link runs at and what it could, and where it is."""
    return _known(
        {
            "pci": path.resolve().name if _PCI_ADDRESS.fullmatch(path.resolve().name) else None,
            "pcie": _pcie(path, "current"),
            "pcie_max": _pcie(path, "max"),
            "numa_node": _number(_read(path / "numa_node")),
            "local_cores": _read(path / "local_cpulist"),
        }
    )


def _pcie(path: Path, which: str) -> str | None:
    speed, width = _read(path / f"{which}_link_speed"), _read(path / f"{which}_link_width")
    # A virtual device says 0, or Unknown.
    if not speed or not width or width in ("0", "255") or not speed[0].isdigit():
        return None
    return f"{speed.replace(' PCIe', '')} x{width}"


def _driver(name: str) -> dict[str, Any]:
    """Driver and firmware. ETHTOOL_GDRVINFO: command, then fields of 32 bytes."""
    answer = _ethtool(name, struct.pack("=I192x", _GDRVINFO))
    if answer is None:
        return {}
    driver, _, firmware = (
        field.split(b"\0")[0].decode(errors="replace") for field in struct.unpack_from("32s32s32s", answer, 4)
    )
    return {"driver": driver or None, "firmware": firmware if firmware not in ("", "N/A") else None}


def _pause(name: str) -> str | None:
    """Ethernet's own flow control: command, autonegotiated, received, sent."""
    answer = _ethtool(name, struct.pack("=I12x", _GPAUSEPARAM))
    if answer is None:
        return None
    _, _, received, sent = struct.unpack("=IIII", answer)
    return {(0, 0): "off", (1, 0): "received", (0, 1): "sent", (1, 1): "received and sent"}[bool(received), bool(sent)]


def _ethtool(name: str, request: bytes) -> bytes | None:
    buffer = ctypes.create_string_buffer(request, len(request))
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
            # struct ifreq: a name, and a union of which this uses a pointer.
            fcntl.ioctl(asked, _SIOCETHTOOL, struct.pack("16sP16x", name.encode()[:15], ctypes.addressof(buffer)))
    except OSError:
        return None
    return buffer.raw


def rdma_devices(root: Path = Path("/sys/class/infiniband")) -> dict[str, dict[str, Any]]:
    """RDMA devices with their ports."""
    found = {}
    for path in sorted(root.glob("*")):
        ports = {each.name: _port(path, each) for each in sorted((path / "ports").glob("*"))}
        found[path.name] = _known(
            {
                # As `1: CA`.
                "type": (_read(path / "node_type") or "").partition(": ")[2] or None,
                "firmware": _read(path / "fw_ver"),
                "model": _read(path / "hca_type"),
                "board": _read(path / "board_id"),
                "driver": _device_driver(path),
                "ports": ports,
                **pci(path / "device"),
            }
        )
    return found


def _device_driver(path: Path) -> str | None:
    """The driver below the device; of the kernel's own devices in software, which have nothing below, their module."""
    if (path / "device/driver").exists():
        return (path / "device/driver").resolve().name
    if (path / "device").exists():
        return None
    # drivers/infiniband/sw has three: rdmavt, which others use, and these.
    return "siw" if (_read(path / "node_type") or "").endswith("RNIC") else "rdma_rxe"


def _port(device: Path, path: Path) -> dict[str, Any]:
    gids = [*_gids(path)]
    netdevs = [gid["netdev"] for gid in gids if gid.get("netdev")]
    # Without an address there is no GID; a device of one port is its only interface's.
    below = [each.name for each in (device / "device/net").glob("*")]
    return _known(
        {
            # As `4: ACTIVE`, `5: LinkUp` and `100 Gb/sec (4X EDR)`.
            "state": (_read(path / "state") or "").partition(": ")[2] or None,
            "physical_state": (_read(path / "phys_state") or "").partition(": ")[2] or None,
            "rate_mbps": _rate_mbps(_read(path / "rate")),
            "rate": _read(path / "rate"),
            "link_layer": _read(path / "link_layer"),
            "lid": _read(path / "lid"),
            "netdev": netdevs[0] if netdevs else below[0] if len(below) == 1 else "",
            "gids": gids,
        }
    )


def _gids(port: Path) -> Iterator[dict[str, Any]]:
    for path in sorted((port / "gids").glob("*"), key=lambda path: int(path.name)):
        gid = _read(path)
        if gid and gid.replace(":", "").strip("0"):
            kind = _read(port / "gid_attrs/types" / path.name)
            netdev = _read(port / "gid_attrs/ndevs" / path.name)
            yield _known({"index": int(path.name), "gid": gid, "type": kind, "netdev": netdev, "ipv4": _ipv4(gid)})


def _ipv4(gid: str) -> str | None:
    """The IPv4 address that a GID stands for, RFC 4291 section 2.5.5.2."""
    packed = bytes.fromhex(gid.replace(":", ""))
    return socket.inet_ntoa(packed[12:]) if packed[:12] == bytes(10) + b"\xff\xff" else None


def _rate_mbps(words: str | None) -> int | None:
    try:
        return round(float((words or "").split()[0]) * 1000)
    except (IndexError, ValueError):
        return None


def programs(names: list[str]) -> dict[str, dict[str, Any]]:
    """Programs that are there, with their place and what they say of their version."""
    found = {}
    for name in names:
        path = shutil.which(name)
        if path is not None:
            version = _version([path, *_VERSION_OPTIONS.get(name, ["--version"])])
            found[name] = _known({"path": path, "version": version})
    return found


def _version(command: list[str]) -> str | None:
    """The first line with a number that a program says, complaint or not: perftest's version comes with a failure."""
    lines = (_output(command, complaints=True) or "").splitlines()
    return next((line.strip() for line in lines if any(letter.isdigit() for letter in line)), None)


def _said(command: list[str]) -> str | None:
    """The first line that a program prints, where it is there and does not complain."""
    output = _output(command)
    lines = (output or "").strip().splitlines()
    return lines[0].strip() if lines else None


def _json(command: list[str]) -> Any:
    try:
        return json.loads(_output(command) or "null")
    except ValueError:
        return None


def _output(command: list[str], *, complaints: bool = False) -> str | None:
    """What a program prints; its errors, and what it prints although it fails, only with `complaints`."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if complaints else subprocess.DEVNULL,
            timeout=_LIMIT_S,
            check=not complaints,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace")


def _read(path: str | Path) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    try:
        return int(text or "")
    except ValueError:
        return None


def _known(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}


if __name__ == "__main__":
    main()
