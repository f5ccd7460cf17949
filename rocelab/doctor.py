"""What this machine can do for rocelab, and what to install. Looks; changes nothing.

The emulated fabric is not judged by its parts: one is made, entered and removed, because only that shows that the
kernel, its modules and the permissions are all there.
"""

from __future__ import annotations

import os
import platform
import shutil
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

from rocelab.fabric import emulated
from rocelab.fabric.base import FabricError, LaunchError, LinkProfile
from rocelab.fabric.keeper import kernel
from rocelab.launch import mpi, reception
from rocelab.launch.namespace import NamespaceLauncher
from rocelab.tools import rocelab_mpi
from rocelab.tools.base import Executable, package_version, printed_version
from rocelab.tools.interconnects import INTERCONNECTS, interconnect, urxe

#: The two link profiles of the quick study.
LINKS = (LinkProfile("direct", "direct"), LinkProfile("ethernet-1g", "bridge", mtu_bytes=1500, rate_mbps=1000))
CORES_WANTED = 2
BUSY_CORE_PERCENT = 20.0
BUSY_LOOK_S = 0.5
FREE_BYTES_WANTED = 200 * 2**20
#: linux/udp.h
_UDP_SEGMENT = 103
_UDP_GRO = 104


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    `missing` counts as a failure only if `required`, that is, if the quick study cannot run without it;
    `note` is something that works but may spoil what is measured.
    """

    group: str
    name: str
    state: Literal["ok", "note", "missing"]
    found: str
    advice: str = ""
    required: bool = False
    #: The Debian package that has what is missing.
    package: str | None = None

    def as_json(self) -> dict[str, Any]:
        """For ``rocelab doctor --json``."""
        return asdict(self)


def examine() -> list[Check]:
    """Every check, in the order a person reads them. Takes about two seconds."""
    steps: tuple[Callable[[], Iterable[Check]], ...] = (
        _machine,
        _fabric,
        _programs,
        _optional_programs,
        _system_mpi,
        _devices,
    )
    return [check for step in steps for check in step()]


def fit(checks: Iterable[Check]) -> bool:
    """Whether the quick study can run here."""
    return not any(check.required and check.state == "missing" for check in checks)


def _machine() -> Iterable[Check]:
    yield Check("machine", "system", "ok", f"Linux {platform.release()}, {platform.machine()}, {_distribution()}")
    yield Check("machine", "Python", "ok", platform.python_version())
    cores = sorted(os.sched_getaffinity(0))
    few = len(cores) < CORES_WANTED
    yield Check(
        "machine",
        "cores",
        "note" if few else "ok",
        f"{len(cores)} usable",
        "Two nodes want a core each; on one core they wait for each other and latency means little." if few else "",
    )
    yield _busy(cores)
    free_bytes = shutil.disk_usage(Path.cwd()).free
    short = free_bytes < FREE_BYTES_WANTED
    advice = "A run needs room for its samples and logs: make some, or use --results." if short else ""
    yield Check("machine", "disk", "note" if short else "ok", f"{free_bytes // 2**20} MiB free here", advice)
    yield _offloads()
    refused = reception.unavailable("napi-deferred")
    advice = "Studies leave out the TCPs for which the kernel polls in place of interrupts; run as root for them."
    found = refused or "in place of interrupts (SO_PREFER_BUSY_POLL)"
    yield Check("machine", "kernel polling", "ok" if refused is None else "note", found, "" if not refused else advice)


def _busy(cores: list[int]) -> Check:
    percents = psutil.cpu_percent(BUSY_LOOK_S, percpu=True)
    busy = [core for core in cores if core < len(percents) and percents[core] > BUSY_CORE_PERCENT]
    load = f"load {os.getloadavg()[0]:.2f}"
    if not busy:
        return Check("machine", "other work", "ok", f"all cores idle, {load}")
    shares = ", ".join(f"core {core} {percents[core]:.0f} %" for core in busy)
    return Check(
        "machine",
        "other work",
        "note",
        f"{shares}, {load}",
        "Something else is running; what is measured now will vary more and look worse than it is.",
    )


def _offloads() -> Check:
    missing = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for name, option in (("segmentation (GSO)", _UDP_SEGMENT), ("coalescing (GRO)", _UDP_GRO)):
            try:
                probe.setsockopt(socket.IPPROTO_UDP, option, 1)
            except OSError:
                missing.append(name)
    if missing:
        advice = "Linux 5.0 has both; without them Soft RoCE needs a system call per packet."
        return Check("machine", "UDP offloads", "note", f"without {' and '.join(missing)}", advice)
    return Check("machine", "UDP offloads", "ok", "segmentation (GSO) and coalescing (GRO)")


def _fabric() -> Iterable[Check]:
    if kernel.may_make_namespaces():
        yield Check("fabric", "privileges", "ok", "may make namespaces (root)")
        yield _user_namespaces(_settings_against_users())
    else:
        yield _user_namespaces(_try_user_namespace(), required=True)
    started_s = time.monotonic()
    try:
        with emulated.up(LINKS) as fabric:
            made_s = time.monotonic() - started_s
            name = NamespaceLauncher(fabric).start(fabric.nodes[1], ["uname", "-n"]).wait(10.0).stdout.strip()
    except (FabricError, LaunchError) as error:
        yield Check(
            "fabric", "emulated fabric", "missing", str(error).splitlines()[0], _rest(str(error)), required=True
        )
        return
    if name != "node1":
        advice = "Please report this with the output of `rocelab doctor --json`."
        yield Check("fabric", "emulated fabric", "missing", f"a node is called {name!r}", advice, required=True)
        return
    yield Check("fabric", "emulated fabric", "ok", f"two nodes, two links, made in {made_s:.1f} s", required=True)


def _rest(text: str) -> str:
    return " ".join(text.splitlines()[1:])


def _user_namespaces(refusal: str | None, *, required: bool = False) -> Check:
    if refusal is None:
        return Check("fabric", "user namespaces", "ok", "ordinary users can make fabrics", required=required)
    advice = (
        "Only root can make fabrics. To allow it for users: sysctl kernel.unprivileged_userns_clone=1 (older Debian), "
        "kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu), user.max_user_namespaces above 0."
    )
    return Check("fabric", "user namespaces", "missing" if required else "note", refusal, advice, required)


def _settings_against_users() -> str | None:
    """What root can tell: a try by root would succeed where users are refused."""
    for name, refusing in (
        ("kernel/unprivileged_userns_clone", "0"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1"),
        ("user/max_user_namespaces", "0"),
    ):
        if _first_line(Path("/proc/sys") / name) == refusing:
            return f"{name.replace('/', '.')} is {refusing}"
    return None


def _try_user_namespace() -> str | None:
    """Tried in a child, because a process cannot leave its user namespace again."""
    child = os.fork()
    if child == 0:
        try:
            kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNET)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    number = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return f"refused: {os.strerror(number)}" if number else None


def _programs() -> Iterable[Check]:
    """The programs that the interconnects' methods name; those are what the quick study runs."""
    wanted: dict[str, Executable] = {}
    for name in INTERCONNECTS:
        for method in interconnect(name).methods.values():
            wanted.update((executable.name, executable) for executable in method.executables)
    nic = urxe()
    for executable in sorted(wanted.values(), key=lambda one: (one.name != nic.name, one.package or "", one.name)):
        yield _urxe(nic) if executable.name == nic.name else _program(executable, "programs", required=True)


def _program(executable: Executable, group: str, *, required: bool) -> Check:
    name = Path(executable.name).name
    if executable.path is None:
        return Check(group, name, "missing", "not there", executable.advice, required, executable.package)
    version = package_version(executable.package) if executable.package else None
    return Check(group, name, "ok", f"{executable.package} {version}" if version else executable.path, "", required)


def _urxe(nic: Executable) -> Check:
    if nic.path is None:
        return Check("programs", "urxe", "missing", "not there", nic.advice, required=True)
    version = printed_version(nic.path, "--version") or "does not say its version"
    # It is of use only with its library; its own search for it is the one that counts.
    listed = printed_version(nic.path, "run", "--", "true")
    if listed:
        return Check("programs", "urxe", "missing", f"{version}, which fails: {listed}", nic.advice, required=True)
    return Check("programs", "urxe", "ok", f"{version}, {nic.path}", required=True)


def _optional_programs() -> Iterable[Check]:
    optional = (
        Executable("ip", "iproute2"),
        Executable("ethtool", "ethtool"),
        Executable("ibv_devinfo", "ibverbs-utils"),
        Executable("rping", "rdmacm-utils"),
        Executable("chromium", "chromium"),
    )
    for executable in optional:
        yield _program(executable, "useful", required=False)
    for kind in mpi.KINDS:
        implementation = mpi.own(kind)
        starter = Executable(str(implementation.mpiexec), remedy=implementation.remedy)
        programs = ((name, rocelab_mpi.program(kind, None, name)) for name in ("rocelab-mpi", "rocelab-nas"))
        for name, executable in ((implementation.title, starter), *programs):
            found, advice = executable.path or "not there", "" if executable.path else executable.advice
            if executable is starter and executable.path:
                found = f"{implementation.version or 'unknown version'}, {found}"
            yield Check(
                "MPI",
                name if executable is starter else f"{name} for {implementation.title}",
                "ok" if executable.path else "missing",
                found,
                advice,
            )


def _system_mpi() -> Iterable[Check]:
    """What a study gets that asks for the system's MPI; nothing if there is none, for none is needed."""
    every = [mpi.installed(kind, "system") for kind in mpi.KINDS]
    there = [implementation for implementation in every if implementation.mpiexec.exists()]
    # One program is taken for each kind in turn, and is one of them at most.
    known = [implementation for implementation in there if implementation.version is not None]
    for implementation in known or there[:1]:
        problem = implementation.problem
        advice = f'Studies cannot ask for it with {implementation.kind} = "system".' if problem else ""
        found = problem or f"{implementation.version}, {implementation.mpiexec}"
        yield Check("MPI", "the system's MPI", "note" if problem else "ok", found, advice)


def _devices() -> Iterable[Check]:
    root = Path("/sys/class/infiniband")
    devices = sorted(root.iterdir()) if root.is_dir() else []
    if not devices:
        yield Check("RDMA devices", "hardware or kernel", "ok", "none (Soft RoCE needs none)")
    for device in devices:
        yield Check("RDMA devices", device.name, "ok", ", ".join(_ports(device)) or "no port")


def _ports(device: Path) -> Iterable[str]:
    for port in sorted((device / "ports").glob("*")):
        words = [_first_line(port / name).rpartition(": ")[2] for name in ("state", "link_layer", "rate")]
        yield f"port {port.name}: {' '.join(word for word in words if word)}"


def _first_line(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip().partition("\n")[0]
    except OSError:
        return ""


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown distribution")
    except OSError:
        return "unknown distribution"
