"""Makes the userlands of other distributions that programs run in: `.build/roots/<name>`, by mmdebstrap.

Usage: roots.py [--must]

Packages are unpacked, not installed: no script of theirs runs, and no rights are needed. A root is made again when its
list of packages has changed. Where one cannot be made, the reason is kept for the tests that are skipped for it; with
--must that is a failure.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
FOLDER: Final = ROOT / ".build" / "roots"
#: Where packages come from.
MIRROR: Final = os.environ.get("ROCELAB_DEBIAN_MIRROR", "http://deb.debian.org/debian")
#: The keys that its releases are signed with.
KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: How long the mirror may take to answer at all.
ANSWER_S: Final = 10.0
#: How long one root may take.
LIMIT_S: Final = 600.0
#: What a root holds, with what that depends on. The last line is what command lines of the matrix
#: use beside it.
PACKAGES: Final = (
    *("ibverbs-providers", "ibverbs-utils", "libibverbs1", "librdmacm1t64", "rdmacm-utils"),
    *("libibverbs-dev", "librdmacm-dev", "python3-pyverbs"),
    *("iproute2", "libfabric-bin", "perftest", "qperf", "ucx-utils"),
    *("base-files", "coreutils", "dash", "diffutils", "libc-bin", "python3"),
)
#: What a program in a root sees as it is on this machine.
SHARED: Final = ("/tmp", "/proc", "/sys", "/dev", "/etc/hosts")  # noqa: S108
#: Where the tests that come with python3-pyverbs are in a root, so that they can be run.
RDMA_CORE: Final = "usr/share/rdma-core"
#: Where a root says what it was made from.
STAMP: Final = "made-from"


class RootError(Exception):
    """There is no such root. The text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Root:
    """A userland that programs can run in."""

    #: What Debian calls its release.
    name: str

    @property
    def path(self) -> Path:
        """Its folder, which is there if the root has been made."""
        return FOLDER / self.name

    @property
    def made_from(self) -> str:
        """What its contents follow from."""
        return hashlib.sha256("\n".join((self.name, MIRROR, *PACKAGES)).encode()).hexdigest() + "\n"

    @property
    def is_made(self) -> bool:
        """Whether it is there, with the packages that are wanted now."""
        stamp = self.path / STAMP
        return stamp.exists() and stamp.read_text(encoding="ascii") == self.made_from

    @property
    def problem(self) -> Path:
        """The file that says why it could not be made."""
        return FOLDER / f"{self.name}.problem"

    def which(self, program: str) -> Path | None:
        """Where a program is, as seen from this machine; an absolute name is one in the root."""
        names = [program] if program.startswith("/") else [f"/{each}/{program}" for each in ("usr/bin", "usr/sbin")]
        paths = (self.path / name.lstrip("/") for name in names)
        return next((path for path in paths if path.exists()), None)

    def inside(self, argv: Sequence[str], folders: Sequence[Path] = ()) -> list[str]:
        """The command that runs `argv` in the root, as root of some user namespace: see the script `enter`.

        It sees the checkout and `folders` where they are on this machine.
        """
        seen = dict.fromkeys(str(folder.resolve()) for folder in (ROOT, *folders))
        shared = [path for path in SHARED if Path(path).exists()]
        unshare = ["unshare", "--mount", "--propagation", "private"]
        return [*unshare, str(HERE / "enter"), str(self.path), *seen, *shared, "--", *argv]


#: Those that are newer than Debian 12, on which urxe is developed.
ROOTS: Final = (Root("trixie"), Root("sid"))


def find(name: str) -> Root:
    """The root of that name, if it has been made; RootError if not."""
    root = next((each for each in ROOTS if each.name == name), None)
    if root is None:
        raise RootError(f"there is no root called {name}; there are {', '.join(each.name for each in ROOTS)}")
    if not root.is_made:
        why = root.problem.read_text(encoding="utf-8").strip() if root.problem.exists() else "it was not made yet"
        raise RootError(f"no userland of Debian {name}: {why}; `make setup-distros` makes it")
    return root


def make(root: Root) -> None:
    """Make a root, in place of an older one. RootError says why it cannot be made.

    It appears complete or not at all: what was interrupted is removed by the next attempt.
    """
    _check_that_it_can_be_made(root)
    partial, old = FOLDER / f"{root.name}.partial", FOLDER / f"{root.name}.old"
    for leftover in (partial, old):
        _remove(leftover)
    _unpack(root, partial)
    _complete(root, partial)
    if root.path.exists():
        root.path.rename(old)
    partial.rename(root.path)
    _remove(old)


def _check_that_it_can_be_made(root: Root) -> None:
    if shutil.which("mmdebstrap") is None:
        raise RootError("there is no mmdebstrap; install the Debian package mmdebstrap")
    if not KEYS.exists():
        raise RootError("there are no keys of Debian's; install the Debian package debian-archive-keyring")
    # apt would try for minutes.
    release = f"{MIRROR}/dists/{root.name}/InRelease"
    try:
        with urllib.request.urlopen(release, timeout=ANSWER_S):
            pass
    except (OSError, ValueError) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        text = f"{release} cannot be read ({reason}); $ROCELAB_DEBIAN_MIRROR can name another mirror"
        raise RootError(text) from error


def _unpack(root: Root, partial: Path) -> None:
    command = [
        *("mmdebstrap", "--quiet", "--mode=chrootless", "--variant=extract", f"--include={','.join(PACKAGES)}"),
        # A mirror may be behind by more than the fortnight that Debian vouches for.
        *("--aptopt=Acquire::Check-Valid-Until false", root.name, str(partial), MIRROR),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RootError(f"mmdebstrap was not ready after {LIMIT_S:g} s") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.startswith(("E:", "W:", "dpkg"))]
        raise RootError("mmdebstrap failed: " + " ".join(lines[:3] or done.stderr.splitlines()[-1:]))


def _complete(root: Root, partial: Path) -> None:
    """Add what no package has: places for what is mounted, the tests of rdma-core as files, and the stamp."""
    for shared in (*map(Path, SHARED), ROOT):
        place = partial / shared.relative_to("/")
        if shared.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif shared.exists() and not place.exists():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
    tests = partial / "usr/share/doc/rdma-core/tests"
    for path in tests.rglob("*") if tests.exists() else ():
        if path.is_file():
            copy = partial / RDMA_CORE / "tests" / str(path.relative_to(tests)).removesuffix(".gz")
            copy.parent.mkdir(parents=True, exist_ok=True)
            data = path.read_bytes()
            copy.write_bytes(gzip.decompress(data) if path.suffix == ".gz" else data)
    (partial / STAMP).write_text(root.made_from, encoding="ascii")


def _remove(folder: Path) -> None:
    """Remove a folder, in which packages may have folders that cannot be written."""
    if not folder.exists():
        return
    for path, _, _ in os.walk(folder):
        Path(path).chmod(0o700)
    shutil.rmtree(folder)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Wait for others that make roots here."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(arguments: Sequence[str]) -> int:
    """Make those that are missing or old."""
    if unknown := [argument for argument in arguments if argument != "--must"]:
        print(f"roots: '{unknown[0]}' is not an option; allowed is --must", file=sys.stderr)
        return 2
    # Asked before as well, so that nothing is waited for when nothing is to be done.
    if all(root.is_made for root in ROOTS):
        return 0
    # Half of the time one of them waits for the network.
    with _alone(), ThreadPoolExecutor(len(ROOTS)) as pool:
        made = all(list(pool.map(_make_or_explain, ROOTS)))
    return 0 if made or not arguments else 1


def _make_or_explain(root: Root) -> bool:
    """Make a root if that is to be done; whether it is there."""
    if root.is_made:
        return True
    started_s = time.monotonic()
    print(f"setup: unpacking a userland of Debian {root.name}", flush=True)
    try:
        make(root)
    except RootError as error:
        root.problem.write_text(f"{error}\n", encoding="utf-8")
        print(f"setup: no userland of Debian {root.name}: {error}; its tests will be skipped", flush=True)
        return False
    root.problem.unlink(missing_ok=True)
    print(f"setup: Debian {root.name} took {time.monotonic() - started_s:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
