"""Where and with what a run is made: machine, kernel, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil

import rocelab
from rocelab.programs import checkout
from rocelab.results import Provenance
from rocelab.study.node_facts import sysctls
from rocelab.study.steps import Step
from rocelab.tools import interconnects
from rocelab.tools.base import Executable

#: Above this many runnable programs per core before the run has even begun, its timings say less.
_BUSY_LOAD = 0.5


def provenance(command: str, steps: Iterable[Step], fabric: str) -> Provenance:
    """Look at this machine and at the programs that the steps use on a fabric of this kind."""
    revision, dirty = commit()
    return Provenance(
        machine=f"{platform.machine()}{_virtualisation()}",
        cpu_model=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=psutil.virtual_memory().total,
        kernel=platform.release(),
        distribution=_distribution(),
        command=command,
        rocelab_version=rocelab.__version__,
        python_version=platform.python_version(),
        urxe_version=urxe_version(),
        git_commit=revision,
        git_dirty=dirty,
        tools=tool_versions(steps),
        # A simulation comes out the same on any machine, busy or not.
        notes=() if fabric == "virtual" else _notes(),
        governor=_governor(),
        # A node's own settings come later, over these.
        network={} if fabric == "virtual" else {"address_family": "IPv4", **sysctls()},
    )


def tool_versions(steps: Iterable[Step]) -> Mapping[str, str]:
    """Every program of the steps, by the name that samples use, with its version; and every MPI with its place."""
    steps = list(steps)
    executables: dict[str, Executable] = {step.tool: step.executables[0] for step in steps}
    found = {tool: interconnects.version(executable) or "unknown" for tool, executable in sorted(executables.items())}
    implementations = {each.title: each for step in steps for each in step.mpi_used}
    return found | {
        title: f"{each.version or 'unknown'}, {each.folder}" for title, each in sorted(implementations.items())
    }


def urxe_version() -> str | None:
    """What ``urxe --version`` says; None where there is no urxe."""
    urxe = interconnects.urxe()
    return interconnects.version(urxe) if urxe.path is not None else None


def commit() -> tuple[str | None, bool | None]:
    """The commit of the checkout that this code is in; (None, None) for an installed package."""
    root = checkout()
    if root is None or not (root / ".git").exists():
        return None, None
    revision = _output("git", "-C", str(root), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(root), "status", "--porcelain", "--untracked-files=no")
    return revision or None, None if changes is None else bool(changes)


def _output(*argv: str) -> str | None:
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=30).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _virtualisation() -> str:
    kind = _output("systemd-detect-virt")
    if kind and kind != "none":
        return f" ({kind} guest)"
    return " (virtual machine)" if "hypervisor" in _cpu_info().get("flags", "").split() else ""


def _cpu_info() -> dict[str, str]:
    """The first processor of /proc/cpuinfo."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def _cpu_model() -> str:
    return _cpu_info().get("model name") or platform.processor() or "unknown"


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", sys.platform)
    except OSError:
        return sys.platform


def _notes() -> tuple[str, ...]:
    notes = []
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    if load > _BUSY_LOAD * cores:
        notes.append(f"The machine was busy before the run: load {load:.1f} on {cores} cores.")
    if cores < 2:
        notes.append("There is one core for two nodes: programs that busy-poll wait for each other.")
    governor = _governor()
    if governor not in (None, "performance"):
        notes.append(f"The CPU frequency governor is {governor}, not performance.")
    return tuple(notes)


def _governor() -> str | None:
    paths = Path("/sys/devices/system/cpu").glob("cpu*/cpufreq/scaling_governor")
    return ", ".join(sorted({path.read_text().strip() for path in paths})) or None
