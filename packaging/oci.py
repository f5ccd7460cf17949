"""Runs a command in a root file system, by crun: as on a machine of its own, or as a container engine starts it.

Nothing but crun is needed: no engine, no image store. `MACHINE` leaves all that an ordinary user of a machine may do,
user namespaces among it. `CONTAINER` is what `docker run --read-only --cap-drop all` gives: no capability, a root that
cannot be written, system calls by the default profile of containers-common, and no /sys of the host.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Debian: golang-github-containers-common.
SECCOMP: Final = Path("/usr/share/containers/seccomp.json")
_MASKED: Final = ("/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/scsi")
_READ_ONLY: Final = ("/proc/asound", "/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
#: crun looks for control groups even where it is told to use none, and refuses those of both
#: versions at once.
_WITHOUT_CGROUPS: Final = (
    *("unshare", "--mount", "--propagation", "private"),
    *("sh", "-c", 'mount -t tmpfs none /sys/fs/cgroup && exec "$@"', "sh"),
)
_NAMESPACES: Final = ("mount", "pid", "ipc", "uts")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a process may do. Without `has_network` it has a loopback interface alone."""

    has_seccomp: bool
    is_read_only: bool
    has_sys: bool
    has_network: bool


_ALL: Final = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID", "CAP_SETUID"),
    *("CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_CHROOT", "CAP_SYS_ADMIN"),
    *("CAP_MKNOD", "CAP_AUDIT_WRITE", "CAP_SETFCAP"),
)
#: The folder of the user who runs something there: `fresh.make` makes it.
HOME: Final = "/var/user"
MACHINE: Final = Surroundings(has_seccomp=False, is_read_only=False, has_sys=True, has_network=True)
CONTAINER: Final = Surroundings(has_seccomp=True, is_read_only=True, has_sys=False, has_network=False)


def missing() -> str | None:
    """What has to be installed before anything can be run; None if nothing."""
    lacking = [package for found, package in (
        (shutil.which("crun"), "crun"), (SECCOMP.exists(), "golang-github-containers-common"),
    ) if not found]  # fmt: skip
    return f"apt-get install {' '.join(lacking)}" if lacking else None


def run(
    root: Path,
    argv: Sequence[str],
    surroundings: Surroundings,
    *,
    user: int = 1000,
    environment: Mapping[str, str] | None = None,
    binds: Mapping[Path, str] | None = None,
    timeout_s: float = 600.0,
) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends; stderr goes to stdout. User 0 has root's rights, but none in a container.

    `binds` are folders of this machine, by where they are in the root.
    """
    with tempfile.TemporaryDirectory() as bundle:
        config = configuration(root, argv, surroundings, user=user, environment=environment or {}, binds=binds or {})
        Path(bundle, "config.json").write_text(json.dumps(config), encoding="utf-8")
        name = f"rocelab-{Path(bundle).name}"
        command = [*_WITHOUT_CGROUPS, "crun", "--cgroup-manager=disabled", "run", "--bundle", bundle, name]
        try:
            return subprocess.run(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                text=True, errors="replace", timeout=timeout_s, check=False,
            )  # fmt: skip
        finally:
            subprocess.run(["crun", "delete", "--force", name], capture_output=True, check=False)


def configuration(
    root: Path,
    argv: Sequence[str],
    surroundings: Surroundings,
    *,
    user: int,
    environment: Mapping[str, str],
    binds: Mapping[Path, str],
) -> dict[str, Any]:
    """The configuration of the OCI runtime specification, version 1.0."""
    is_container = surroundings.has_seccomp
    capabilities = list(_ALL) if user == 0 and not is_container else []
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    variables = {"PATH": path, "HOME": HOME, "LANG": "C.UTF-8"}
    mounts: list[dict[str, Any]] = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        _tmpfs("/dev", "mode=755"),
        {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["newinstance", "ptmxmode=0666"]},
        _tmpfs("/dev/shm", "mode=1777"),  # noqa: S108, of the container
        _tmpfs("/tmp", "mode=1777"),  # noqa: S108, of the container
        *([{"destination": "/sys", "type": "sysfs", "source": "sysfs"}] if surroundings.has_sys else []),
        *([_tmpfs(HOME, "mode=777")] if surroundings.is_read_only else []),
        *(_bind(path, where) for path, where in binds.items()),
    ]
    namespaces = [*_NAMESPACES, *([] if surroundings.has_network else ["network"])]
    linux: dict[str, Any] = {"namespaces": [{"type": name} for name in namespaces]}
    if is_container:
        linux |= {"maskedPaths": list(_MASKED), "readonlyPaths": list(_READ_ONLY), "seccomp": seccomp()}
    return {
        "ociVersion": "1.0.2",
        "root": {"path": str(root), "readonly": surroundings.is_read_only},
        "hostname": "fresh",
        "mounts": mounts,
        "linux": linux,
        "process": {
            "user": {"uid": user, "gid": user},
            "args": list(argv),
            "env": [f"{name}={value}" for name, value in {**variables, **environment}.items()],
            "cwd": "/tmp" if surroundings.is_read_only else "/",  # noqa: S108, of the container
            "capabilities": dict.fromkeys(("bounding", "effective", "permitted", "inheritable"), capabilities),
            "noNewPrivileges": is_container,
        },
    }


def seccomp() -> dict[str, Any]:
    """The default profile of container engines, for a process without capabilities on x86-64, as a runtime takes it."""
    profile = json.loads(SECCOMP.read_text(encoding="utf-8"))
    rules = []
    for rule in profile["syscalls"]:
        includes, excludes = rule.get("includes") or {}, rule.get("excludes") or {}
        if (
            includes.get("caps")
            or "amd64" not in includes.get("arches", ["amd64"])
            or "amd64" in excludes.get("arches", [])
        ):
            continue
        kept = {key: rule[key] for key in ("names", "action", "errnoRet") if rule.get(key) is not None}
        if rule.get("args"):
            kept["args"] = [{key: value for key, value in each.items() if key != "comment"} for each in rule["args"]]
        rules.append(kept)
    return {
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    }


def _bind(path: Path, where: str) -> dict[str, Any]:
    return {"destination": where, "type": "bind", "source": str(path), "options": ["rbind", "ro"]}


def _tmpfs(where: str, *options: str) -> dict[str, Any]:
    return {"destination": where, "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", *options]}
