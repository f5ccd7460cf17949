"""Fetches packages of a Debian release from a mirror, and takes files out of them, without installing anything.

What is fetched is what the release says: its index has the SHA-256 that InRelease gives, a package that of the index.
The signature of InRelease is checked where gpgv and Debian's keys are.
"""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import re
import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

DEBIAN: Final = os.environ.get("ROCELAB_DEBIAN_MIRROR", "http://deb.debian.org/debian")
#: The keys of all releases, from the package debian-archive-keyring.
KEYS: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
INDEX: Final = "main/binary-amd64/Packages.xz"
#: A mirror that says nothing for so long is not there.
SILENCE_S: Final = 60.0


class MirrorError(Exception):
    """What was asked for is not on the mirror, or is not what the release says. The text says which."""


@dataclass(frozen=True, slots=True)
class Package:
    """A package of a release."""

    name: str
    version: str
    #: The packages that it needs; of alternatives the first.
    depends: tuple[str, ...]
    #: Where it is on the mirror.
    file: str
    sha256: str


class Release:
    """A release on a mirror, by the name of its suite."""

    def __init__(self, suite: str, mirror: str = DEBIAN) -> None:
        """Read the index, which takes some seconds.

        Raises MirrorError.
        """
        self._mirror = mirror
        signed = _signed(_read(f"{mirror}/dists/{suite}/InRelease"))
        found = re.search(rf"^ ([0-9a-f]{{64}}) +\d+ {re.escape(INDEX)}$", signed, re.MULTILINE)
        if found is None:
            raise MirrorError(f"InRelease of {suite} does not name {INDEX}")
        packed = _checked(_read(f"{mirror}/dists/{suite}/{INDEX}"), found[1], f"{INDEX} of {suite}")
        self._entries = lzma.decompress(packed).split(b"\n\n")
        self._suite = suite

    def package(self, name: str, version: str | None = None) -> Package:
        """A package by its name, of this version or of the first that is there.

        Raises MirrorError if the release does not have it.
        """
        start = b"Package: " + name.encode() + b"\n"
        wanted = b"" if version is None else b"\nVersion: " + version.encode() + b"\n"
        entry = next((each for each in self._entries if each.lstrip().startswith(start) and wanted in each), None)
        if entry is None:
            raise MirrorError(f"{self._suite} has no package {name}" + (f" {version}" if version else ""))
        fields = dict(re.findall(r"^(\S+): (.*)$", entry.decode(), re.MULTILINE))
        depends = fields.get("Depends", "")
        names = tuple(re.split(r"[ (:|]", each.strip())[0] for each in depends.split(",") if each.strip())
        return Package(name, fields["Version"], names, fields["Filename"], fields["SHA256"])

    def with_needed(self, name: str, is_wanted: Callable[[str], bool]) -> Iterator[Package]:
        """A package, and those that it needs, and so on, as far as they are wanted by name."""
        left, seen = [name], {name}
        while left:
            package = self.package(left.pop())
            yield package
            new = [each for each in package.depends if each not in seen and is_wanted(each)]
            seen.update(new)
            left.extend(new)

    def fetch(self, package: Package, into: Path) -> Path:
        """Fetch a package into a folder. Raises MirrorError, and leaves no file, if its content is another one."""
        archive = into / Path(package.file).name
        content = _read(f"{self._mirror}/{package.file}")
        archive.write_bytes(_checked(content, package.sha256, archive.name))
        return archive


def extract(archive: Path, wanted: re.Pattern[str], into: Path) -> list[Path]:
    """Take the files out of a package whose whole path matches, each by its name alone. Needs dpkg-deb."""
    if shutil.which("dpkg-deb") is None:
        raise MirrorError(f"there is no dpkg-deb to unpack {archive.name} with")
    taken: list[Path] = []
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as unpacking:
        assert unpacking.stdout is not None
        with tarfile.open(fileobj=unpacking.stdout, mode="r|") as files:
            for member in files:
                if member.isfile() and wanted.fullmatch(member.name.removeprefix("./")):
                    taken.append(into / Path(member.name).name)
                    content: IO[bytes] | None = files.extractfile(member)
                    assert content is not None
                    taken[-1].write_bytes(content.read())
    if unpacking.returncode != 0:
        raise MirrorError(f"dpkg-deb could not unpack {archive.name}")
    return taken


def _read(url: str) -> bytes:
    try:
        with urllib.request.urlopen(url, timeout=SILENCE_S) as answer:
            content: bytes = answer.read()
            return content
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise MirrorError(f"{url}: {error}") from error


def _checked(content: bytes, sha256: str, what: str) -> bytes:
    """The content, if it has this hash."""
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise MirrorError(f"{what} has the SHA-256 {found}, which should be {sha256}")
    return content


def _signed(release: bytes) -> str:
    """What is signed of InRelease."""
    if shutil.which("gpgv") is None or not KEYS.exists():
        return release.decode()
    # Where a key that is not here has signed it, too, gpgv fails, although it has found a good
    # signature.
    checking = ["gpgv", "--quiet", "--status-fd", "2", "--keyring", str(KEYS), "--output", "-"]
    checked = subprocess.run(checking, input=release, capture_output=True, check=False)
    if b"[GNUPG:] VALIDSIG" not in checked.stderr or b"[GNUPG:] BADSIG" in checked.stderr:
        raise MirrorError(f"InRelease is not signed by Debian: {checked.stderr.decode(errors='replace')}")
    return checked.stdout.decode()
