"""Builds all packages into .build/packages: wheels of rocelab and urxe, and Debian packages of both.

Usage: build.py [wheels] [aarch64] [debs]      (wheels and debs when nothing is named)

The programs are built once, by cargo-zigbuild and zig, against glibc 2.28: so they run on Debian 10, Ubuntu 20.04,
Fedora 30 and newer. Its Python has to have what packaging/requirements.lock lists: `make packages` sees to that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import debs

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / ".build" / "packages"
#: The oldest glibc that the programs run with, as manylinux_2_28 has it.
GLIBC: Final = "2.28"
#: The crates whose programs and library are packaged.
CRATES: Final = ("urxe-cli", "urxe-preload", "urxe-virtual")
PARTS: Final = ("wheels", "aarch64", "debs")


def run(*argv: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> None:
    """Run a command that has to succeed."""
    print("+", *argv, flush=True)
    subprocess.run([str(word) for word in argv], check=True, cwd=cwd, env={**os.environ, **(env or {})})


def source_date() -> str:
    """When the commit was made, seconds since 1970, which packages say of their files: so two builds are the same."""
    done = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def programs(machine: str) -> tuple[Path, Path]:
    """Build everything for one machine: the tree of urxe, and that of rocelab, which has urxe in it as well."""
    triple = f"{machine}-unknown-linux-gnu"
    target = ROOT / "nic" / "target" / "packages"
    words = [word for crate in CRATES for word in ("-p", crate)]
    environment = {
        "CARGO_TARGET_DIR": str(target),
        # zig's, which cargo-zigbuild calls.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    run(
        *("scripts/reproducibly", "cargo", "zigbuild", "--manifest-path", "nic/Cargo.toml", "--locked", "--release"),
        *("--target", f"{triple}.{GLIBC}", *words),
        env=environment,
    )
    bench = Path("build", machine)
    compiler = f"{sys.executable} -m ziglang cc -target {machine}-linux-gnu.{GLIBC}"
    run("scripts/reproducibly", "make", "-C", "bench", f"BUILD={bench}", f"CC={compiler}", bench / "rocelab-sock")
    release = target / triple / "release"
    trees = OUT / "trees" / machine
    shutil.rmtree(trees, ignore_errors=True)
    # The command of this machine, which has to be built, writes completions and manual pages.
    texts = {"URXE": str(target / f"{os.uname().machine}-unknown-linux-gnu" / "release" / "urxe")}
    for name in ("urxe", "rocelab"):
        run("packaging/install_urxe", release, trees / name, env=texts)
    run("packaging/install_rocelab_programs", release, ROOT / "bench" / bench, trees / "rocelab")
    return trees / "urxe", trees / "rocelab"


def wheels(machine: str, trees: Sequence[Path]) -> list[Path]:
    """The wheels of urxe and rocelab for one machine."""
    made = []
    for tree, source in zip(trees, (ROOT / "nic" / "python", ROOT), strict=True):
        before = set(OUT.glob("*.whl"))
        environment = {
            "ROCELAB_WHEEL_TREE": str(tree),
            "ROCELAB_WHEEL_PLATFORM": f"manylinux_{GLIBC.replace('.', '_')}_{machine}",
            "SOURCE_DATE_EPOCH": source_date(),
        }
        for old in before:
            if old.name.startswith(f"{tree.name}-") and old.name.endswith(f"_{machine}.whl"):
                old.unlink()
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", OUT, env=environment, cwd=source)
        [wheel] = OUT.glob(f"{tree.name}-*_{machine}.whl")
        run(sys.executable, "-m", "auditwheel", "show", wheel)
        made.append(wheel)
    return made


def main(argv: Sequence[str]) -> int:
    """Build what is named."""
    if unknown := sorted(set(argv) - set(PARTS)):
        print(f"build: there is no {', '.join(unknown)}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    parts = argv or ("wheels", "debs")
    OUT.mkdir(parents=True, exist_ok=True)
    trees = programs("x86_64")
    if "wheels" in parts:
        wheels("x86_64", trees)
    if "debs" in parts:
        debs.build(*trees, OUT, source_date())
    if "aarch64" in parts:
        wheels("aarch64", programs("aarch64"))
    for path in sorted(OUT.glob("*.*")):
        if path.is_file():
            print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
