"""Debian packages: urxe, for each release, and rocelab for each Python that releases have.

debhelper makes them, from a folder put together here: packaging/debian, the trees of programs, and for rocelab the
Python packages of requirements.lock as PyPI has them for that Python. Debian has no packages of most of these, or older
ones.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
#: Pythons of Debian 12, Ubuntu 24.04, Debian 13, and sid; $PYTHONS names others.
PYTHONS: Final = tuple(os.environ.get("PYTHONS", "3.11 3.12 3.13 3.14").split())
#: What the wheels from PyPI are for: the platforms of Linux on x86-64 whose glibc is at most that
#: of our own programs.
PLATFORMS: Final = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux_2_12_x86_64",
    "manylinux2010_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64")  # fmt: skip
_LOCKED: Final = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==")
_VIA: Final = re.compile(r"^    #(?: via|  ) +(?P<name>[A-Za-z0-9._-]+)", re.MULTILINE)


def build(urxe: Path, rocelab: Path, out: Path, source_date: str) -> None:
    """Make all of them, from the trees of both, into the folder `out`. `source_date` is in seconds since 1970."""
    for old in out.glob("*.deb"):
        old.unlink()
    version = _version()
    for python in PYTHONS:
        folder = out / "deb" / "rocelab"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(ROOT / "packaging" / "debian", folder / "debian")
        shutil.copytree(ROOT / "packaging" / "launcher", folder / "launcher")
        for tree in (urxe, rocelab):
            shutil.copytree(tree, folder / "trees" / tree.name)
        install(python, folder / "python")
        when = formatdate(int(source_date))
        maintainer = re.search(
            r"^Maintainer: (.*)$", (folder / "debian" / "control").read_text(encoding="utf-8"), re.MULTILINE
        )
        assert maintainer is not None
        entry = (
            f"rocelab ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {maintainer[1]}  {when}\n"
        )
        (folder / "debian" / "changelog").write_text(entry, encoding="utf-8")
        environment = {
            **os.environ,
            "SOURCE_DATE_EPOCH": source_date,
            "ROCELAB_PYTHON": python,
            "ROCELAB_VERSION": f"{version}+py{python.replace('.', '')}",
            "ROCELAB_DEPENDS": f"python3 (>= {python}), python3 (<< 3.{int(python.partition('.')[2]) + 1})",
        }
        command = ["dpkg-buildpackage", "--build=binary", "--no-sign", "--no-check-builddeps"]
        with (out / "deb" / "log").open("w", encoding="utf-8") as log:
            done = subprocess.run(
                command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
            )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{(out / 'deb' / 'log').read_text(encoding='utf-8')[-4000:]}")
        for made in (out / "deb").glob("*.deb"):
            if "dbgsym" not in made.name:
                made.rename(out / made.name)
    shutil.rmtree(out / "deb")


def install(python: str, folder: Path) -> None:
    """Install rocelab and what it needs for one Python into a folder, as PyPI has it."""
    folder.mkdir(parents=True)
    lock = folder.parent / "run.lock"
    lock.write_text(
        "".join(needed((ROOT / "requirements.lock").read_text(encoding="utf-8"), _roots())), encoding="utf-8"
    )
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        "install",
        "--no-compile",
        "--no-deps",
    ]
    pip += ["--target", str(folder)]
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    wheels = [*platforms, "--only-binary=:all:", "--implementation", "cp", "--python-version", python]
    subprocess.run([*pip, *wheels, "--require-hashes", "--requirement", str(lock)], check=True)
    lock.unlink()
    # pip would leave what is there, and say so.
    _remove_what_is_found_elsewhere(folder)
    without = {name: value for name, value in os.environ.items() if not name.startswith("ROCELAB_WHEEL_")}
    subprocess.run([*pip, "--no-build-isolation", str(ROOT)], check=True, env=without)
    _remove_what_is_found_elsewhere(folder)
    # Where this one came from is of this machine.
    for made in (*folder.glob("rocelab-*.dist-info/direct_url.json"), *folder.glob("*.dist-info/RECORD")):
        made.unlink()


def _remove_what_is_found_elsewhere(folder: Path) -> None:
    """Commands and settings of packages."""
    for name in ("bin", "etc", "share"):
        shutil.rmtree(folder / name, ignore_errors=True)


def needed(lock: str, roots: frozenset[str]) -> Iterator[str]:
    """The entries of a lock file of pip-compile that these packages need, with their hashes."""
    entries: dict[str, str] = {}
    for block in re.split(r"\n(?=[A-Za-z0-9])", lock):
        if found := _LOCKED.match(block):
            entries[_normal(found["name"])] = block.rstrip("\n") + "\n"
    parents = {name: {_normal(via) for via in _VIA.findall(entry)} for name, entry in entries.items()}
    wanted = roots & set(entries)
    while more := {name for name, via in parents.items() if via & wanted} - wanted:
        wanted |= more
    return (entries[name] for name in sorted(wanted))


def _roots() -> frozenset[str]:
    """The packages that rocelab names itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(_normal(re.split(r"[<>=!~\[; ]", each)[0]) for each in project["dependencies"])


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version() -> str:
    found = re.search(
        r'^__version__ = "(.*)"$', (ROOT / "rocelab" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert found is not None
    return found[1]
