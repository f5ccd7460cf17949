"""The container image: a Debian with both packages, as an OCI archive, which `podman load` and `docker load` take.

What is in it, the user, and the command are those of packaging/Containerfile, which makes the same on top of an image
of Debian's own where there is an engine. Here mmdebstrap makes the root, and umoci the image; both need root.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import fresh
from oci import HOME

CONTAINERFILE: Final = Path(__file__).resolve().parent / "Containerfile"
#: The release of Debian that the image is made from. The package of rocelab is for its Python.
RELEASE: Final = "trixie"
PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def named(containerfile: str) -> list[str]:
    """The packages of the distribution that a Containerfile installs beside ours. Raises ValueError if it has none."""
    found = re.search(r"apt-get install [^\n]*/packages/\*\.deb ([a-z0-9 +.-]+)", containerfile)
    if found is None:
        raise ValueError("the Containerfile installs no packages beside /packages/*.deb")
    return found[1].split()


def build(urxe: Path, rocelab: Path, out: Path, version: str, source_date: str) -> Path:
    """Make the archive of these two Debian packages in the folder `out`. `source_date` is in seconds since 1970.

    Raises fresh.FreshError if the root cannot be made, and CalledProcessError if umoci fails.
    """
    packages = named(CONTAINERFILE.read_text(encoding="utf-8"))
    root = fresh.make(RELEASE, "image", packages, files=[urxe, rocelab], is_to_leave=True)
    layout = out / "image"
    shutil.rmtree(layout, ignore_errors=True)
    image = f"{layout}:urxe"
    when = datetime.fromtimestamp(int(source_date), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    umoci("init", "--layout", str(layout))
    umoci("new", "--image", image)
    umoci("insert", "--image", image, "--history.created", when, str(root), "/")
    settings = {
        "config.user": ["user"],
        "config.workingdir": ["/tmp"],  # noqa: S108, of the container
        "config.cmd": ["urxe", "devices"],
        "config.env": [f"PATH={PATH}", f"HOME={HOME}", "LANG=C.UTF-8"],
        "architecture": ["amd64"],
        "os": ["linux"],
        "created": [when],
        "history.created": [when],
    }
    umoci("config", "--image", image, *(f"--{name}={value}" for name, values in settings.items() for value in values))
    umoci("gc", "--layout", str(layout))
    archive = out / f"urxe-image_{version}_amd64.oci.tar"
    for old in out.glob("urxe-image_*_amd64.oci.tar"):
        old.unlink()
    owner = ("--owner=0", "--group=0", "--numeric-owner")
    subprocess.run(
        ["tar", "-C", layout, "--sort=name", f"--mtime=@{source_date}", *owner, "-cf", archive, "."], check=True
    )
    shutil.rmtree(layout)
    return archive


def umoci(*arguments: str) -> None:
    """Run umoci, which has to succeed. Its errors go to stderr."""
    command: Sequence[str] = ("umoci", *arguments)
    print("+", *command, flush=True)
    subprocess.run(command, check=True)
