"""Boots Debian's kernels in QEMU, with a software RDMA device of theirs, on a bridge of this network namespace.

A guest needs no image: it mounts the file system of the host, read-only, and runs the host's programs on its own
kernel. With KVM a guest answers within seconds; without, its processors are emulated.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import gzip
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .kernels import BUILT, SUITES, Kernel, busybox, kernel_of
from .mirror import MirrorError
from .siw_module import BuildError, siw_of

HERE: Final = Path(__file__).resolve().parent
QEMU: Final = "qemu-system-x86_64"
#: What joins the guests and the host, and the device of urxe on it. Packets of a path MTU of 4096
#: fit.
BRIDGE: Final = "br0"
LINK_MTU_BYTES: Final = 4200
HOST_DEVICE: Final = f"urxe_{BRIDGE}"
HOST_ADDRESS: Final = "10.66.0.1"
HOST_ADDRESS6: Final = "fd66::1"
#: What a guest's device can be: Linux rxe, for RoCE, or Linux siw, for iWARP.
RXE, SIW = "rxe", "siw"
#: A guest's interface, and its devices: that of Linux rxe, that of Linux siw, and urxe's.
GUEST_INTERFACE: Final = "eth0"
GUEST_DEVICE: Final = f"{RXE}0"
GUEST_SIW: Final = f"{SIW}0"
GUEST_URXE: Final = f"urxe_{GUEST_INTERFACE}"
AGENT_PORT: Final = 7000
#: How long a guest may take until it answers, without and with KVM.
BOOT_S: Final = {False: 120.0, True: 30.0}
#: What QEMU is told of a guest's processors, without and with KVM.
PROCESSORS: Final = {
    False: ("-accel", "tcg,thread=multi", "-cpu", "max,-erms,-fsrm,-pclmulqdq"),
    True: ("-accel", "kvm", "-cpu", "host"),
}
KVM: Final = Path("/dev/kvm")
CPUINFO: Final = Path("/proc/cpuinfo")
#: Makes a virtual machine of an open KVM: <linux/kvm.h>.
KVM_CREATE_VM: Final = 0xAE01


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
    #: The release that its kernel is from.
    suite: str
    #: The version of its kernel.
    kernel: str
    #: What its device is when it starts, rxe or siw.
    link: str = RXE
    #: Why its processors are emulated; None: they are the host's, by KVM.
    emulated: str | None = None

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

    def shell(self, *lines: str) -> str:
        """Run lines of a shell that may use ip and tc; what they print. Each has to succeed."""
        done = self.run(["sh", "-c", " && ".join(["export PATH=$PATH:/sbin:/usr/sbin", *lines])])
        assert done.status == 0, done.output
        return done.output


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
def booted(number: int = 1, suite: str = SUITES[0], link: str = RXE) -> Iterator[Guest]:
    """A guest that answers, on the bridge, with the kernel of this release and this kind of device.

    Raises GuestError if QEMU or the packages are missing, or the guest does not answer.
    """
    kernel, first_program = fetched(suite, link)
    tap = f"tap{number}"
    for words in (f"tuntap add {tap} mode tap", f"link set {tap} mtu {LINK_MTU_BYTES} master {BRIDGE} up"):
        subprocess.run(["ip", *words.split()], check=True)
    try:
        with tempfile.TemporaryDirectory(dir=BUILT, prefix="guest-") as folder:
            initramfs = write_initramfs(Path(folder), first_program, kernel)
            guest = Guest(number, suite, kernel.version, link, why_no_kvm())
            with contextlib.ExitStack() as running:
                try:
                    running.enter_context(_running(guest, kernel, initramfs))
                except GuestError as error:
                    if guest.emulated is not None:
                        raise
                    # Not every KVM that says that it can does run a kernel.
                    guest = dataclasses.replace(guest, emulated=f"with KVM, {error}")
                    running.enter_context(_running(guest, kernel, initramfs))
                yield guest
    finally:
        subprocess.run(["ip", "link", "delete", tap], check=True)


@contextlib.contextmanager
def _running(guest: Guest, kernel: Kernel, initramfs: Path) -> Iterator[None]:
    """QEMU with a guest, once that answers."""
    console = BUILT / f"console{guest.number}.log"
    with subprocess.Popen(_command(guest, kernel, initramfs, console), stdin=subprocess.DEVNULL) as qemu:
        try:
            wait_until_it_answers(guest, qemu, console)
            yield
        finally:
            qemu.kill()


def _command(guest: Guest, kernel: Kernel, initramfs: Path, console: Path) -> list[str]:
    """What starts QEMU."""
    arguments = {
        "console": "ttyS0",
        "panic": "-1",
        "mitigations": "off",
        "guest.address": f"{guest.address}/24",
        "guest.address6": f"{guest.address6}/64",
        "guest.mtu": str(LINK_MTU_BYTES),
        "guest.link": guest.link,
        "guest.agent": str(HERE / "agent.py"),
        "guest.port": str(AGENT_PORT),
    }
    appended = " ".join(["quiet", "no_timer_check", *(f"{name}={value}" for name, value in arguments.items())])
    words = [QEMU, *PROCESSORS[guest.emulated is None], "-machine", "q35", "-smp", "2", "-m", "1536"]
    words += ["-nodefaults", "-display", "none", "-no-reboot", "-serial", f"file:{console}"]
    words += ["-kernel", str(kernel.image), "-initrd", str(initramfs), "-append", appended]
    words += ["-virtfs", "local,path=/,mount_tag=root,security_model=none,readonly=on,multidevs=remap"]
    words += ["-netdev", f"tap,id=link,ifname=tap{guest.number},script=no,downscript=no"]
    words += ["-device", f"virtio-net-pci,netdev=link,mac=52:54:00:66:00:{guest.number + 1:02x}"]
    return words


def why_no_kvm(device: Path = KVM, cpuinfo: Path = CPUINFO) -> str | None:
    """Why KVM cannot run Debian's kernels here; None if nothing speaks against it."""
    try:
        descriptor = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.close(fcntl.ioctl(descriptor, KVM_CREATE_VM, 0))
        finally:
            os.close(descriptor)
    except OSError as error:
        return f"{device}: {error.strerror}"
    # There is a KVM for processors without them, PVM, but it runs only kernels that were made for
    # it.
    if not {"vmx", "svm"} & set(cpuinfo.read_text(encoding="utf-8").split()):
        return "the processors have neither VMX nor SVM"
    return None


def fetched(suite: str = SUITES[0], link: str = RXE) -> tuple[Kernel, Path]:
    """The kernel of a release, and busybox. Where they have to be fetched, this needs the network of the host.

    The kernel that has Linux siw has Linux rxe, too.
    """
    if shutil.which(QEMU) is None:
        raise GuestError(f"there is no {QEMU}; install the Debian package qemu-system-x86")
    try:
        kernel = kernel_of(suite)
        if link == SIW:
            kernel = dataclasses.replace(kernel, modules=(*kernel.modules, siw_of(kernel, suite)))
        return kernel, busybox()
    except MirrorError as error:
        raise GuestError(f"the kernel of Debian's {suite} cannot be fetched: {error}") from error
    except BuildError as error:
        raise GuestError(f"Linux siw cannot be built for the kernel of Debian's {suite}: {error}") from error


def wait_until_it_answers(guest: Guest, qemu: subprocess.Popen[bytes], console: Path) -> None:
    """Wait for the agent."""
    boot_s = BOOT_S[guest.emulated is None]
    deadline_s = time.monotonic() + boot_s
    while qemu.poll() is None and time.monotonic() < deadline_s:
        with contextlib.suppress(OSError), socket.create_connection((guest.address, AGENT_PORT), 1):
            return
        time.sleep(0.2)
    what = f"QEMU ended with status {qemu.returncode}" if qemu.poll() is not None else f"no answer within {boot_s:g} s"
    said = console.read_text(errors="replace")[-2000:].strip() if console.exists() else ""
    raise GuestError(f"the guest failed: {what}" + (f"; it said:\n{said}" if said else ""))


def write_initramfs(folder: Path, first_program: Path, kernel: Kernel) -> Path:
    """What the kernel starts with: busybox, the modules, and init."""
    root = folder / "root"
    for name in ("bin", "proc", "sys", "dev", "host", "lib"):
        (root / name).mkdir(parents=True)
    shutil.copy(first_program, root / "bin" / "busybox")
    shutil.copy(HERE / "init", root)
    (root / "init").chmod(0o755)
    names = subprocess.run([first_program, "--list"], capture_output=True, text=True, check=True).stdout.split()
    for name in names:
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    for module in kernel.modules:
        shutil.copy(module, root / "lib")
    (root / "modules").write_text("".join(f"/lib/{module.name}\n" for module in kernel.modules))
    files = "".join(f"{each.relative_to(root)}\n" for each in sorted(root.rglob("*")))
    packing = [str(first_program), "cpio", "-o", "-H", "newc"]
    packed = subprocess.run(packing, input=files.encode(), cwd=root, stdout=subprocess.PIPE, check=True).stdout
    initramfs = folder / "initramfs.gz"
    initramfs.write_bytes(gzip.compress(packed, 1))
    return initramfs


def in_its_own_namespace() -> bool:
    """Whether nothing but loopback is here, so that a link of our own disturbs no program."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]
