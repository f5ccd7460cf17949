"""Builds urxe and liburxe.so twice in different places, and compares them.

Usage: scripts/reproducible.py [FOLDER]

Two clones of the last commit in different folders are built from nothing with low priority. The settings are those of
packages (scripts/reproducibly), and the linker is this machine's in place of zig. Exit status 1 if the programs differ.
`make packages PARTS=again` compares the packages that the same programs make.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILT = ("urxe", "liburxe.so")
CRATES = ("urxe-cli", "urxe-preload")
_LOWEST_PRIORITY = 19
#: Differing sections that are named.
_SECTIONS_SHOWN = 8


def places(folder: Path) -> tuple[Path, Path]:
    """Two checkouts below a folder that have nothing in common but that folder."""
    return folder / "one", folder / "another" / "place"


def build(checkout: Path, root: Path) -> Path:
    """Clone the last commit of a repository, build it there, and return the folder with the programs."""
    checkout.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", root, checkout], check=True)
    target = checkout / "nic" / "target"
    variables = {name: value for name, value in os.environ.items() if name not in {"RUSTFLAGS", "CFLAGS"}}
    crates = [word for crate in CRATES for word in ("-p", crate)]
    cargo = ("cargo", "build", "--manifest-path", "nic/Cargo.toml", "--locked", "--release", *crates)
    subprocess.run(
        [checkout / "scripts" / "reproducibly", *cargo],
        cwd=checkout,
        env={**variables, "CARGO_TARGET_DIR": str(target)},
        preexec_fn=lambda: os.nice(_LOWEST_PRIORITY),
        check=True,
    )
    return target / "release"


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
    one, two = (build(checkout, ROOT) for checkout in places(folder))
    found = [line for name in BUILT for line in differences(one / name, two / name, str(folder))]
    for line in found:
        print(line)
    if not found:
        for name in BUILT:
            print(f"{name} is the same twice: sha256 {sha256((one / name).read_bytes()).hexdigest()}")
        shutil.rmtree(folder)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / ".build" / "reproducible"))
