"""Checks the design's import directions, circles and purity of the Rust crates.

Usage: scripts/check_imports.py

wire <- proto <- {sim, congestion, fabric, duty, device}; congestion <- {fabric, device}; fabric <- virtual;
wire <- cm <- device; {iwarp-wire, proto} <- iwarp <- device;
{duty, udp} <- device <- preload <- cli. proto, cm and udp never see each other.

Within a crate, files form no circle, but for those in CIRCLES: there, no more of them may. Folders of a crate that has
many stand in LAYERS, and need those below them alone.

wire, proto, iwarp-wire, iwarp, duty, sim, congestion, fabric and cm may read no clock, open no
socket and draw no unseeded randomness. Building them for a target without an operating system would
show that, but such a target cannot be installed from a package registry. The attribute #![no_std] is
the stronger proof, because it needs no second build: without std there is no clock, socket, thread, file or random
source to name. So this checks that they are #![no_std] and forbid unsafe code (no system call by
hand). It also checks that std is brought back for tests only, and that they use no external crate
but those listed here, which were looked at.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from circles import circles, name_of, needs

ROOT = Path(__file__).resolve().parent.parent
NIC = ROOT / "nic"
PREFIX = "urxe-"

# Which crate may import which, in the library and the build script.
ALLOWED: Mapping[str, frozenset[str]] = {
    "wire": frozenset(),
    "proto": frozenset({"wire"}),
    "iwarp-wire": frozenset(),
    "iwarp": frozenset({"iwarp-wire", "wire", "proto"}),
    "duty": frozenset({"proto"}),
    "sim": frozenset({"wire", "proto"}),
    "congestion": frozenset({"proto"}),
    "fabric": frozenset({"wire", "proto", "congestion"}),
    "virtual": frozenset({"wire", "fabric"}),
    "cm": frozenset({"wire"}),
    "inputs": frozenset({"wire", "proto", "cm", "iwarp-wire", "iwarp"}),
    "udp": frozenset(),
    "device": frozenset({"wire", "proto", "iwarp-wire", "iwarp", "congestion", "duty", "cm", "udp"}),
    "preload": frozenset({"wire", "proto", "cm", "udp", "device"}),
    "cli": frozenset({"wire", "proto", "cm", "udp", "device", "preload"}),
}
# What tests and examples may import beyond that: proto is tested in the simulator, and the floor
# under udp has ICRCs.
ALLOWED_IN_TESTS: Mapping[str, frozenset[str]] = {
    "proto": frozenset({"sim"}),
    "sim": frozenset({"congestion"}),
    "iwarp": frozenset({"sim"}),
    "udp": frozenset({"wire"}),
}

#: How many files of a crate are in circles; all others have none.
CIRCLES: Mapping[str, int] = {"proto": 13, "udp": 2}

#: The folders of a crate's source, each of which needs those before it alone; so do the files
#: beside them.
LAYERS: Mapping[str, tuple[str, ...]] = {
    "device": (
        "process",
        "memory",
        "delivery",
        "attach",
        "stream",
        "engine",
        "nic",
        "objects",
        "cm",
        "stat_server",
        "forks",
        "open",
        "exit",
    ),
}

SANS_IO = ("wire", "proto", "iwarp-wire", "iwarp", "duty", "sim", "congestion", "fabric", "cm")
# External crates of the sans-IO crates: none with a clock, IO or entropy, and all #![no_std] with
# the features used, but libdeflater and crc-fast: of them only a CRC is used, a function of its
# arguments; crc-fast has std to ask what the CPU has.
# oorandom is a generator that only a seed can start; serde turns data into other data.
PURE_CRATES = frozenset({"bitflags", "crc-fast", "libdeflater", "oorandom", "serde", "smallvec"})
_TEST_MODULE = re.compile(r"#\[cfg\(test\)\]\s*mod\s+\w+\s*\{")  # the last thing in a file


def direction_errors(packages: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Every import between our crates that goes the wrong way. `packages` are cargo's, by crate name without urxe-."""
    for name, package in sorted(packages.items()):
        if name not in ALLOWED:
            yield f"nic/{name}: the design has no place for this crate yet; give it one in scripts/check_imports.py"
            continue
        for dependency in package["dependencies"]:
            target = dependency["name"].removeprefix(PREFIX)
            if target not in packages or target == name:
                continue
            in_tests = dependency["kind"] == "dev"
            allowed = ALLOWED[name] | (ALLOWED_IN_TESTS.get(name, frozenset()) if in_tests else frozenset())
            if target not in allowed:
                where = "its tests import" if in_tests else "it imports"
                yield f"nic/{name}: {where} {target}; allowed are {', '.join(sorted(allowed)) or 'none of ours'}"


def circle_errors(name: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Circles of files in a crate, if they have more files than is known of it; or fewer, so that it is noted."""
    found = circles(needs(sources))
    count, known = sum(map(len, found)), CIRCLES.get(name, 0)
    if count < known:
        yield f"nic/{name}: only {count} files are in circles: write that in CIRCLES of scripts/check_imports.py"
    if count > known:
        for circle in found:
            yield f"nic/{name}: a circle of {len(circle)} files: {', '.join(map(name_of, circle))}"


def layer_errors(name: str, sources: Mapping[str, str]) -> Iterator[str]:
    """Files that need a folder above their own, and folders without a place among those of their crate."""
    layers = LAYERS.get(name, ())
    for module, targets in sorted(needs(sources).items() if layers else ()):
        for target in sorted(targets):
            if not module or not target or module[0] == target[0]:
                continue
            if {module[0], target[0]} <= set(layers):
                if layers.index(target[0]) > layers.index(module[0]):
                    yield f"nic/{name}: {name_of(module)} needs {name_of(target)}, which is above it"
            else:
                yield f"nic/{name}: {module[0]} or {target[0]} has no place in LAYERS of scripts/check_imports.py"


def purity_errors(packages: Mapping[str, Mapping[str, Any]], sources: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Every way in which a sans-IO crate could reach the world. `sources` maps crate to file name to text."""
    for name in SANS_IO:
        if name not in packages:
            yield f"nic/{name}: this crate is not in the workspace"
            continue
        for dependency in packages[name]["dependencies"]:
            ours = dependency["name"].startswith(PREFIX)
            if dependency["kind"] != "dev" and not ours and dependency["name"] not in PURE_CRATES:
                known = ", ".join(sorted(PURE_CRATES))
                yield f"nic/{name}: {dependency['name']} is not among the crates known to do no IO: {known}"
        yield from _source_errors(name, sources[name])


def _source_errors(name: str, files: Mapping[str, str]) -> Iterator[str]:
    root = _without_comments(files.get("lib.rs", ""))
    for attribute in ("no_std", "forbid(unsafe_code)"):
        # Exactly so: #![cfg_attr(not(test), no_std)] would let std into what a test build hides.
        if not re.search(rf"^#!\[{re.escape(attribute)}\]$", root, re.MULTILINE):
            yield f"nic/{name}/src/lib.rs: #![{attribute}] is missing"
    for file, text in sorted(files.items()):
        code = _without_comments(text)
        tests_start = _TEST_MODULE.search(code)
        for match in re.finditer(r"((?:#\[[^\]]*\]\s*)*)extern\s+crate\s+std\b", code):
            in_tests = tests_start is not None and match.start() > tests_start.start()
            if not in_tests and "#[cfg(test)]" not in match[1]:
                line = code.count("\n", 0, match.end()) + 1
                yield f"nic/{name}/src/{file}:{line}: std is brought back outside of tests"


def _without_comments(text: str) -> str:
    return re.sub(r"//[^\n]*", "", text)


def _packages() -> dict[str, dict[str, Any]]:
    command = [
        "cargo",
        "metadata",
        "--manifest-path",
        str(NIC / "Cargo.toml"),
        "--no-deps",
        "--locked",
        "--format-version=1",
    ]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return {package["name"].removeprefix(PREFIX): package for package in json.loads(out)["packages"]}


def _sources(crate: str) -> dict[str, str]:
    folder = NIC / crate / "src"
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in folder.rglob("*.rs")}


def main() -> int:
    """Check the workspace as it lies here."""
    packages = _packages()
    errors = [*direction_errors(packages), *purity_errors(packages, {name: _sources(name) for name in SANS_IO})]
    for name in sorted(packages.keys() & ALLOWED.keys()):
        sources = _sources(name)
        errors += [*circle_errors(name, sources), *layer_errors(name, sources)]
    for error in errors:
        print(error, file=sys.stderr)
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
