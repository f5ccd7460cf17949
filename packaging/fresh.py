"""Fresh systems to try packages in: a Debian with nothing but what a page names, made by mmdebstrap from the mirror."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from oci import HOME

ROOT: Final = Path(__file__).resolve().parents[1]
FOLDER: Final = ROOT / ".build" / "fresh"
MIRROR: Final = os.environ.get("ROCELAB_DEBIAN_MIRROR", "http://deb.debian.org/debian")
KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
#: Releases by name, with the version that their Python has.
RELEASES: Final = {"bookworm": "3.11", "trixie": "3.13", "sid": "3.14"}
#: What of this machine a system needs to reach the mirror and PyPI as this machine does.
_SHARED: Final = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")


class FreshError(Exception):
    """A system could not be made. The text says why."""


def make(
    release: str, name: str, packages: Iterable[str], *, files: Iterable[Path] = (), is_to_leave: bool = False
) -> Path:
    """A root file system with these packages of the release, and with Debian packages of ours, as apt installs them.

    It is made once, and again when what it is made from has changed. One that is to leave this machine keeps nothing
    of how this machine reaches its mirrors. Raises FreshError.
    """
    root = FOLDER / f"{release}-{name}"
    listed, files = sorted(packages), sorted(files)
    stamp = root.with_suffix(".made-from")
    shared = [each for each in _SHARED if Path("/", each).exists()]
    hooks = [f'mkdir -p "$(dirname "$1/{each}")" && cp -L /{each} "$1/{each}"' for each in shared]
    if files:
        hooks.append(f'mkdir -p "$1/ours" && cp {" ".join(map(str, files))} "$1/ours"')
        # apt installs a file with what it depends on; what is recommended is for people to choose.
        install = "apt-get install -q -y --no-install-recommends /ours/*.deb"
        update = "apt-get update -q && DEBIAN_FRONTEND=noninteractive"
        hooks.append(f"chroot \"$1\" sh -c '{update} {install} && rm -r /ours'")
    # The smallest systems have no useradd.
    hooks.append(f'echo "user:x:1000:1000::{HOME}:/bin/sh" >> "$1/etc/passwd"')
    hooks.append(f'mkdir "$1{HOME}" && chown 1000:1000 "$1{HOME}"')
    if is_to_leave:
        hooks.append('cd "$1" && rm -f ' + " ".join((*shared, "etc/hostname", "etc/apt/apt.conf.d/99mmdebstrap")))
    command = [
        *("mmdebstrap", "--variant=apt", "--aptopt=APT::Install-Recommends false", f"--keyring={KEYS}"),
        # A mirror may be some weeks behind; its signature counts all the same.
        "--aptopt=Acquire::Check-Valid-Until false",
        *(f"--include={package}" for package in listed),
        *(f"--customize-hook={hook}" for hook in hooks),
        *(release, str(root), MIRROR),
    ]
    made_from = "\n".join([*command, *(f"{path.name} {path.stat().st_mtime_ns}" for path in files)])
    if root.is_dir() and stamp.exists() and stamp.read_text(encoding="utf-8") == made_from:
        return root
    shutil.rmtree(root, ignore_errors=True)
    stamp.unlink(missing_ok=True)
    FOLDER.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=900, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FreshError(f"mmdebstrap: {error}") from None
    if done.returncode:
        shutil.rmtree(root, ignore_errors=True)
        raise FreshError(f"mmdebstrap ended with {done.returncode}:\n{done.stderr[-3000:]}")
    stamp.write_text(made_from, encoding="utf-8")
    return root
