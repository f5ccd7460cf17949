"""Boots Debian's kernel in QEMU, with its software RoCE device, on a link to this network namespace.

The guest needs no image: it mounts the file system of the host, read-only, and runs the host's programs on its own
kernel. That and a busybox to start with are Debian's packages, unpacked; run by itself, this file fetches them. It
takes some 10 s until the guest answers.
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
#: The host's end of the link, and the device of urxe on it.
TAP: Final = "tap0"
HOST_DEVICE: Final = f"urxe_{TAP}"
HOST_ADDRESS: Final = "10.66.0.1"
GUEST_DEVICE: Final = "rxe0"
GUEST_ADDRESS: Final = "10.66.0.2"
AGENT_PORT: Final = 7000
BOOT_S: Final = 120.0
MODULES: Final = (
    "virtio_pci",
    "virtio_net",
    "9pnet_virtio",
    "9p",
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

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], limit_s: float) -> None:
        """Start it."""
        self._limit_s = limit_s
        self._connection = socket.create_connection((GUEST_ADDRESS, AGENT_PORT), 10)
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


class Guest:
    """The running guest."""

    def __init__(self, kernel: str) -> None:
        """Take note of the kernel's version."""
        self.kernel = kernel

    def start(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, limit_s: float = 60.0) -> Running:
        """Start a program."""
        return Running(argv, env or {}, limit_s)

    def run(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, limit_s: float = 60.0) -> Finished:
        """Run a program to its end."""
        return self.start(argv, env=env, limit_s=limit_s).wait()


@contextlib.contextmanager
def booted() -> Iterator[Guest]:
    """A guest that answers, in the network namespace of the caller, which should be one of its own.

    Raises GuestError if QEMU or the packages are missing, or the guest does not answer.
    """
    kernel, busybox = fetched()
    version = kernel.name.removeprefix("vmlinuz-")
    initramfs = BUILT / "initramfs.gz"
    write_initramfs(initramfs, busybox, kernel.parents[1] / "lib" / "modules" / version)
    for words in (f"tuntap add {TAP} mode tap", f"address add {HOST_ADDRESS}/24 dev {TAP}", f"link set {TAP} up"):
        subprocess.run(["ip", *words.split()], check=True)
    console = BUILT / "console.log"
    arguments = {
        "console": "ttyS0",
        "panic": "-1",
        "mitigations": "off",
        "guest.address": f"{GUEST_ADDRESS}/24",
        "guest.agent": str(HERE / "agent.py"),
        "guest.port": str(AGENT_PORT),
    }
    command = [QEMU, "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max,-erms,-fsrm,-pclmulqdq"]
    command += ["-smp", "2", "-m", "1536", "-nodefaults", "-display", "none", "-no-reboot"]
    command += ["-kernel", str(kernel), "-initrd", str(initramfs), "-serial", f"file:{console}"]
    command += ["-append", " ".join(["quiet", *(f"{name}={value}" for name, value in arguments.items())])]
    command += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]
    command += ["-netdev", f"tap,id=link,ifname={TAP},script=no,downscript=no", "-device", "virtio-net-pci,netdev=link"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as qemu:
        try:
            wait_until_it_answers(qemu, console)
            yield Guest(version)
        finally:
            qemu.kill()


def fetched() -> tuple[Path, Path]:
    """The kernel and busybox. Where they have to be fetched, this needs the network of the host."""
    if shutil.which(QEMU) is None:
        raise GuestError(f"there is no {QEMU}; install the Debian package qemu-system-x86")
    return unpack("linux-image-amd64", "boot/vmlinuz-*"), unpack("busybox-static", "bin/busybox")


def wait_until_it_answers(qemu: subprocess.Popen[bytes], console: Path) -> None:
    """Wait for the agent."""
    deadline_s = time.monotonic() + BOOT_S
    while qemu.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.create_connection((GUEST_ADDRESS, AGENT_PORT), 1):
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
