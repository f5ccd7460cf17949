"""Builds urxe and liburxe.so twice in different places, and compares them.

Usage: scripts/reproducible.py [FOLDER]

Two clones of the last commit are built from nothing, as packages are (scripts/reproducibly), with low priority. The
places of the checkouts, of cargo's files and of what is built differ, and so do the permissions of new files and the
time. Exit status 1 if the programs differ.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ("urxe", "liburxe.so")
CRATES = ("urxe-cli", "urxe-preload")
_LOWEST_PRIORITY = 19
#: Differing sections that are named.
_SECTIONS_SHOWN = 8


@dataclass(frozen=True)
class Place:
    """Where a build is made: the checkout, the folder for what is built, and more variables."""

    checkout: Path
    target: Path
    variables: Mapping[str, str]
    umask: int

    @property
    def release(self) -> Path:
        """The folder with the programs."""
        return self.target / "release"


def places(folder: Path, cargo_home: Path) -> tuple[Place, Place]:
    """Two places below a folder that have no path in common but that of the folder."""
    one, two = folder / "one", folder / "another" / "place"
    usual = Place(one, one / "nic" / "target", {}, 0o022)
    other = Place(two, folder / "built", {"CARGO_HOME": str(folder / "cargo")}, 0o077)
    two.parent.mkdir(parents=True)
    # The same files by another name, so that nothing is fetched twice.
    Path(other.variables["CARGO_HOME"]).symlink_to(cargo_home, target_is_directory=True)
    return usual, other


def build(place: Place, root: Path) -> None:
    """Clone the last commit of a repository, and build it."""
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", root, place.checkout], check=True)
    variables = {name: value for name, value in os.environ.items() if name not in {"RUSTFLAGS", "CFLAGS"}}
    variables |= {"CARGO_TARGET_DIR": str(place.target), **place.variables}
    crates = [word for crate in CRATES for word in ("-p", crate)]
    cargo = ("cargo", "build", "--manifest-path", "nic/Cargo.toml", "--locked", "--release", *crates)
    subprocess.run(
        [place.checkout / "scripts" / "reproducibly", *cargo],
        cwd=place.checkout,
        env=variables,
        umask=place.umask,
        preexec_fn=lambda: os.nice(_LOWEST_PRIORITY),
        check=True,
    )


def differences(first: Path, second: Path, folder: str) -> list[str]:
    """What differs between two files, if they are not equal, and which of them name a folder."""
    one, two = first.read_bytes(), second.read_bytes()
    found = [f"{path} names {folder}" for path, data in ((first, one), (second, two)) if folder.encode() in data]
    if one == two:
        return found
    at = next((index for index, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), min(len(one), len(two)))
    found.append(f"{first} ({len(one)} bytes) and {second} ({len(two)} bytes) differ from byte {at} on")
    sections = [name for name, a, b in zip(*_sections(first, second), strict=False) if a != b]
    return [*found, *(f"  section {name} differs" for name in sections[:_SECTIONS_SHOWN])]


def _sections(first: Path, second: Path) -> tuple[list[str], list[bytes], list[bytes]]:
    """The names of the first file's sections, and what they hold in both files."""
    command = ["readelf", "--section-headers", "--wide", str(first)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    names = [line.split("]", 1)[1].split()[0] for line in listed.splitlines() if "] ." in line]
    return names, [_section(first, name) for name in names], [_section(second, name) for name in names]


def _section(path: Path, name: str) -> bytes:
    dumped = subprocess.run(["readelf", f"--hex-dump={name}", path], capture_output=True, check=False)
    return dumped.stdout


def main(folder: Path) -> int:
    """Build twice, compare, and say what came out."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cargo_home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    both = places(folder, cargo_home)
    for place in both:
        build(place, ROOT)
    one, two = both
    found = [line for name in BUILT for line in differences(one.release / name, two.release / name, str(folder))]
    for line in found:
        print(line)
    if not found:
        for name in BUILT:
            print(f"{name} is the same twice: sha256 {sha256((one.release / name).read_bytes()).hexdigest()}")
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / ".build" / "reproducible"))
