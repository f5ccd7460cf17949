"""Boots Debian's kernel in QEMU, with its software RoCE device, on a bridge of this network namespace.

A guest needs no image: it mounts the file system of the host, read-only, and runs the host's programs on its own
kernel. That and a busybox to start with are Debian's packages, unpacked; run by itself, this file fetches them. It
takes some 10 s until a guest answers.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import lzma
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
#: Where packages are unpacked.
BUILT: Final = ROOT / ".build" / "rxe"
QEMU: Final = "qemu-system-x86_64"
#: What joins the guests and the host, and the device of urxe on it. Packets of a path MTU of 4096 fit.
BRIDGE: Final = "br0"
LINK_MTU_BYTES: Final = 4200
HOST_DEVICE: Final = f"urxe_{BRIDGE}"
HOST_ADDRESS: Final = "10.66.0.1"
HOST_ADDRESS6: Final = "fd66::1"
#: A guest's interface, and its devices of both kinds.
GUEST_INTERFACE: Final = "eth0"
GUEST_DEVICE: Final = "rxe0"
GUEST_URXE: Final = f"urxe_{GUEST_INTERFACE}"
AGENT_PORT: Final = 7000
BOOT_S: Final = 120.0
MODULES: Final = (
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
    "sch_prio",
    "sch_ingress",
    "sch_netem",
    "cls_u32",
    "act_mirred",
    "ifb",
    "crc32_generic",
    "ib_uverbs",
    "rdma_ucm",
    "rdma_rxe",
)


class GuestError(Exception):
    """There is no guest. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What a program in the guest printed, and its exit status (negative: the signal that ended it)."""

    output: str
    status: int


class Running:
    """A program in the guest."""

    def __init__(self, address: str, argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> None:
        """Start it in the guest that has this address."""
        self._limit_s = limit_s
        self._connection = socket.create_connection((address, AGENT_PORT), 10)
        request = {"argv": list(argv), "env": dict(env), "limit_s": limit_s}
        self._connection.sendall(json.dumps(request).encode() + b"\n")

    def wait(self) -> Finished:
        """Wait until it ends; the guest stops it at its time limit."""
        self._connection.settimeout(self._limit_s + 20)
        with self._connection, self._connection.makefile("rb") as answer:
            *printed, status = answer.read().splitlines(keepends=True) or [b"-1"]
        return Finished(b"".join(printed).decode(errors="replace"), int(status))

    def stop(self) -> None:
        """End it, if it has not ended."""
        self._connection.close()


@dataclass(frozen=True, slots=True)
class Guest:
    """A running guest."""

    #: From 1 on.
    number: int
    #: The version of its kernel.
    kernel: str

    @property
    def address(self) -> str:
        """Its IPv4 address."""
        return f"10.66.0.{self.number + 1}"

    @property
    def address6(self) -> str:
        """Its IPv6 address, beside the link-local one."""
        return f"fd66::{self.number + 1}"

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, limit_s: float = 60.0) -> Running:
        """Start a program."""
        return Running(self.address, argv, env or {}, limit_s)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, limit_s: float = 60.0) -> Finished:
        """Run a program to its end."""
        return self.start(argv, env=env, limit_s=limit_s).wait()


def make_bridge() -> None:
    """Make the bridge in the network namespace of the caller, which should be one of its own."""
    for words in (
        "link set lo up",
        f"link add {BRIDGE} mtu {LINK_MTU_BYTES} type bridge",
        f"address add {HOST_ADDRESS}/24 dev {BRIDGE}",
        f"address add {HOST_ADDRESS6}/64 dev {BRIDGE} nodad",
        f"link set {BRIDGE} up",
    ):
        subprocess.run(["ip", *words.split()], check=True)


@contextlib.contextmanager
def booted(number: int = 1) -> Iterator[Guest]:
    """A guest that answers, on the bridge.

    Raises GuestError if QEMU or the packages are missing, or the guest does not answer.
    """
    kernel, busybox = fetched()
    guest = Guest(number, kernel.name.removeprefix("vmlinuz-"))
    initramfs = BUILT / f"initramfs{number}.gz"
    write_initramfs(initramfs, busybox, kernel.parents[1] / "lib" / "modules" / guest.kernel)
    tap = f"tap{number}"
    for words in (f"tuntap add {tap} mode tap", f"link set {tap} mtu {LINK_MTU_BYTES} master {BRIDGE} up"):
        subprocess.run(["ip", *words.split()], check=True)
    console = BUILT / f"console{number}.log"
    arguments = {
        "console": "ttyS0",
        "panic": "-1",
        "mitigations": "off",
        "guest.address": f"{guest.address}/24",
        "guest.address6": f"{guest.address6}/64",
        "guest.mtu": str(LINK_MTU_BYTES),
        "guest.agent": str(HERE / "agent.py"),
        "guest.port": str(AGENT_PORT),
    }
    command = [QEMU, "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max,-erms,-fsrm,-pclmulqdq"]
    command += ["-smp", "2", "-m", "1536", "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-kernel", str(kernel), "-initrd", str(initramfs), "-serial", f"file:{console}"]
    command += [
        "-append",
        " ".join(["quiet", "no_timer_check", *(f"{name}={value}" for name, value in arguments.items())]),
    ]
    command += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]
    command += ["-netdev", f"tap,id=link,ifname={tap},script=no,downscript=no"]
    command += ["-device", f"virtio-net-pci,netdev=link,mac=52:54:00:66:00:{number + 1:02x}"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as qemu:
        try:
            wait_until_it_answers(guest, qemu, console)
            yield guest
        finally:
            qemu.kill()


def fetched() -> tuple[Path, Path]:
    """The kernel and busybox. Where they have to be fetched, this needs the network of the host."""
    if shutil.which(QEMU) is None:
        raise GuestError(f"there is no {QEMU}; install the Debian package qemu-system-x86")
    return unpack("linux-image-amd64", "boot/vmlinuz-*"), unpack("busybox-static", "bin/busybox")


def wait_until_it_answers(guest: Guest, qemu: subprocess.Popen[bytes], console: Path) -> None:
    """Wait for the agent."""
    deadline_s = time.monotonic() + BOOT_S
    while qemu.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.create_connection((guest.address, AGENT_PORT), 1):
            return
        time.sleep(0.2)
    said = console.read_text(errors="replace")[-2000:] if console.exists() else ""
    raise GuestError(f"the guest did not answer within {BOOT_S:g} s; it said:\n{said}")


def unpack(package: str, pattern: str) -> Path:
    """A file of a Debian package, which is fetched and unpacked if that has not been done."""
    folder = BUILT / package
    if not any(folder.glob(pattern)):
        if shutil.which("apt-get") is None:
            raise GuestError(f"there is no apt-get to fetch {package} with")
        download = BUILT / "download"
        download.mkdir(parents=True, exist_ok=True)
        for name in (package, *versioned(package)):
            subprocess.run(["apt-get", "download", "--quiet", name], cwd=download, check=True)
            for archive in download.glob(f"{name}_*.deb"):
                subprocess.run(["dpkg-deb", "--extract", str(archive), str(folder)], check=True)
                archive.unlink()
    found = sorted(folder.glob(pattern))
    if not found:
        raise GuestError(f"{package} has no {pattern}")
    return found[-1]


def versioned(package: str) -> list[str]:
    """The package of the newest kernel, for the one that only depends on it."""
    shown = subprocess.run(["apt-cache", "depends", package], capture_output=True, text=True, check=True).stdout
    return re.findall(r"Depends: (linux-image-\S+)", shown)[:1]


def write_initramfs(path: Path, busybox: Path, modules: Path) -> None:
    """What the kernel starts with: busybox, the modules, and init."""
    root = BUILT / "root"
    shutil.rmtree(root, ignore_errors=True)
    for folder in ("bin", "proc", "sys", "dev", "host", "lib"):
        (root / folder).mkdir(parents=True)
    shutil.copy(busybox, root / "bin")
    shutil.copy(HERE / "init", root)
    (root / "init").chmod(0o755)
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    order: list[str] = []
    for name, code in in_order(modules):
        (root / "lib" / f"{name}.ko").write_bytes(code)
        order.append(f"/lib/{name}.ko\n")
    (root / "modules").write_text("".join(order))
    names = "".join(f"{each.relative_to(root)}\n" for each in sorted(root.rglob("*")))
    packing = [str(busybox), "cpio", "-o", "-H", "newc"]
    packed = subprocess.run(packing, input=names.encode(), cwd=root, stdout=subprocess.PIPE, check=True).stdout
    path.write_bytes(gzip.compress(packed, 1))


def in_order(modules: Path) -> Iterator[tuple[str, bytes]]:
    """The modules that the guest needs, each after those that it depends on. What is built in is not among them."""
    files = {re.sub(r"\.ko.*", "", path.name).replace("-", "_"): path for path in modules.rglob("*.ko*")}
    done: set[str] = set()

    def visit(name: str) -> Iterator[tuple[str, bytes]]:
        path = files.get(name)
        if name in done or path is None:
            return
        done.add(name)
        code = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
        depends = re.search(rb"\0depends=([^\0]*)\0", code)
        for other in depends[1].decode().split(",") if depends else []:
            yield from visit(other.replace("-", "_"))
        yield name, code

    for wanted in MODULES:
        yield from visit(wanted)


def in_its_own_namespace() -> bool:
    """Whether nothing but loopback is here, so that a link of our own disturbs nobody."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


if __name__ == "__main__":
    try:
        fetched()
    except GuestError as missing:
        print(f"interop: {missing}")
