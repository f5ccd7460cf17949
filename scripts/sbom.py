"""Writes what the programs are made of, as CycloneDX in JSON: one bill of materials for each of them.

Usage: scripts/sbom.py FOLDER --cargo-cyclonedx PROGRAM --python PROGRAM

`urxe.cdx.json` and `liburxe.so.cdx.json` have the crates of the last commit's Cargo.lock that they need on this
platform, to be built as well. `rocelab.cdx.json` has what requirements.lock names; what only development needs has the
scope "excluded". `make sbom` names the programs: cargo-cyclonedx, and a Python with cyclonedx-bom, which checks each
file against the schema. The same commit makes the same files.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: Of the format; what both tools write, and scanners of today read.
SPEC_VERSION = "1.5"
#: The crate, as a folder of nic/, that each program is built from.
PROGRAMS = {"urxe": "cli", "liburxe.so": "preload"}

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CHECK = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
error = JsonStrictValidator(SchemaVersion.from_version(sys.argv[1])).validate_str(sys.stdin.read())
sys.exit(str(error) if error else 0)
"""


def normal(name: str) -> str:
    """A name of a Python package, as PyPI compares it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def runtime_names(lock: str, direct: Iterable[str]) -> frozenset[str]:
    """The packages of a lock of pip-compile that `direct` needs, itself included, by what it notes: `# via ...`."""
    needed_by: dict[str, set[str]] = {}
    package, in_via = "", False
    for line in lock.splitlines():
        if pinned := re.match(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==", line):
            package, in_via = normal(pinned[1]), False
            needed_by[package] = set()
        elif noted := re.match(r" +# +(via)?(.*)", line):
            in_via = in_via or noted[1] is not None
            if in_via and (name := _NAME.match(noted[2].strip())):
                needed_by[package].add(normal(name[0]))
    found = {normal(name) for name in direct}
    while more := {name for name, by in needed_by.items() if by & found} - found:
        found |= more
    return frozenset(found & set(needed_by))


def direct_names(project: Mapping[str, Any]) -> list[str]:
    """What pyproject.toml says that rocelab needs to run."""
    names = (_NAME.match(each) for each in project["project"]["dependencies"])
    return [name[0] for name in names if name is not None]


def of_python(python: Path, version: str, epoch: str) -> dict[str, Any]:
    """The bill of materials of rocelab."""
    lock = ROOT / "requirements.lock"
    command = [
        *(str(python), "-W", "ignore", "-m", "cyclonedx_py", "requirements", str(lock)),
        *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
        *("--output-reproducible", "--spec-version", SPEC_VERSION, "--output-format", "JSON"),
    ]
    bill: dict[str, Any] = json.loads(_output(command, SOURCE_DATE_EPOCH=epoch))
    bill["metadata"]["component"]["version"] = version
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needed = runtime_names(lock.read_text(encoding="utf-8"), direct_names(project))
    for component in bill["components"]:
        component["scope"] = "required" if normal(component["name"]) in needed else "excluded"
        # The line of the lock, which has been read.
        component.pop("description", None)
    return bill


def of_rust(cargo_cyclonedx: Path, epoch: str) -> dict[str, dict[str, Any]]:
    """The bills of materials of the programs in Rust, by their names."""
    with tempfile.TemporaryDirectory() as folder:
        # It writes beside the manifests.
        archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD", "nic"], capture_output=True, check=True)
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as packed:
            packed.extractall(folder, filter="data")
        nic = Path(folder) / "nic"
        options = ("--format", "json", "--spec-version", SPEC_VERSION, "--override-filename", "bill")
        command = [str(cargo_cyclonedx), "cyclonedx", "--manifest-path", str(nic / "Cargo.toml"), *options]
        _output(command, SOURCE_DATE_EPOCH=epoch)
        texts = {name: (nic / crate / "bill.json").read_text(encoding="utf-8") for name, crate in PROGRAMS.items()}
    # It names the crates of the workspace by their folder.
    return {name: json.loads(text.replace(f"{folder}/", "")) for name, text in texts.items()}


def check(python: Path, text: str) -> None:
    """Hold a bill of materials against the schema of the format."""
    done = subprocess.run(
        [str(python), "-c", _CHECK, SPEC_VERSION], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"this is no CycloneDX {SPEC_VERSION}: {done.stderr.strip()}")


def _output(command: list[str], **variables: str) -> str:
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout


def main(arguments: list[str]) -> int:
    """Write the files."""
    parser = argparse.ArgumentParser(description="Writes what the programs are made of, as CycloneDX.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cargo-cyclonedx", type=Path, required=True)
    parser.add_argument("--python", type=Path, required=True)
    options = parser.parse_args(arguments)
    epoch = _output(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]).strip()
    version = tomllib.loads((ROOT / "nic" / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"][
        "version"
    ]
    bills = of_rust(options.cargo_cyclonedx, epoch) | {"rocelab": of_python(options.python, version, epoch)}
    options.folder.mkdir(parents=True, exist_ok=True)
    for name, bill in bills.items():
        text = json.dumps(bill, indent=2, ensure_ascii=False, sort_keys=True) + "\n"
        check(options.python, text)
        (options.folder / f"{name}.cdx.json").write_text(text, encoding="utf-8")
        print(f"{options.folder / name}.cdx.json: {len(bill['components'])} components")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
