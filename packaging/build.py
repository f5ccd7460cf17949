"""Builds all packages into .build/packages: wheels of rocelab and urxe, Debian packages of both, and an image.

Usage: build.py [wheels] [debs] [image] [aarch64] [again]      (wheels, debs and image when nothing is named)

The programs are built once, by cargo-zigbuild and zig, against glibc 2.28: so they run on Debian 10, Ubuntu 20.04,
Fedora 30 and newer. `again` makes wheels and Debian packages a second time from the same programs, and compares them.
Its Python has to have what packaging/tools.lock lists: `make packages` sees to that.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

import debs
import fresh
import images

ROOT: Final = Path(__file__).resolve().parents[1]
OUT: Final = ROOT / ".build" / "packages"
#: The oldest glibc that the programs run with, as manylinux_2_28 has it.
GLIBC: Final = "2.28"
#: The crates whose programs and library are packaged.
CRATES: Final = ("urxe-cli", "urxe-preload", "urxe-virtual")
PARTS: Final = ("wheels", "debs", "image", "aarch64", "again")
USUAL: Final = ("wheels", "debs", "image")


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


def wheels(machine: str, trees: Sequence[Path], out: Path) -> list[Path]:
    """The wheels of urxe and rocelab for one machine, in the folder `out`."""
    made = []
    platform = f"manylinux_{GLIBC.replace('.', '_')}_{machine}"
    for tree, source in zip(trees, (ROOT / "nic" / "python", ROOT), strict=True):
        environment = {
            "ROCELAB_WHEEL_TREE": str(tree),
            "ROCELAB_WHEEL_PLATFORM": platform,
            "SOURCE_DATE_EPOCH": source_date(),
        }
        for old in out.glob(f"{tree.name}-*_{machine}.whl"):
            old.unlink()
        run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out, env=environment, cwd=source)
        [wheel] = out.glob(f"{tree.name}-*_{machine}.whl")
        check_platform(wheel, platform)
        made.append(wheel)
    return made


def check_platform(wheel: Path, platform: str) -> None:
    """See that what the programs of a wheel need is there wherever pip installs it. Ends the build if not."""
    done = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=False
    )
    print(done.stdout, done.stderr, sep="", flush=True)
    if done.returncode or f'"{platform}"' not in done.stdout:
        sys.exit(f"build: {wheel.name} is not for {platform}, by what auditwheel shows of it (above)")


def image() -> None:
    """The image, of the Debian packages that are there."""
    if os.geteuid() != 0:
        print("build: no image was made: its root file system takes root (sudo make packages PARTS=image)")
        return
    python = fresh.RELEASES[images.RELEASE].replace(".", "")
    found = [sorted(OUT.glob(pattern)) for pattern in ("urxe_*_amd64.deb", f"rocelab_*+py{python}_amd64.deb")]
    if not all(found):
        sys.exit(
            f"build: the image takes the Debian packages of urxe and of rocelab for Python {python}: name debs, too"
        )
    [urxe], [rocelab] = (files[-1:] for files in found)
    images.build(urxe, rocelab, OUT, urxe.name.split("_")[1], source_date())


def again(trees: tuple[Path, Path]) -> None:
    """Make the wheels and the Debian packages once more, and compare. Ends the build if they differ."""
    folder = OUT / "again"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    wheels("x86_64", trees, folder)
    debs.build(*trees, folder, source_date())
    differing = [path.name for path in sorted(folder.iterdir()) if digest(path) != digest(OUT / path.name)]
    if differing:
        sys.exit(f"build: made twice from the same programs, these differ: {', '.join(differing)} (see {folder})")
    print(f"build: {len(list(folder.iterdir()))} packages are the same when they are made again")
    shutil.rmtree(folder)


def digest(path: Path) -> str:
    """The SHA-256 of a file; of one that is missing, nothing."""
    return sha256(path.read_bytes()).hexdigest() if path.exists() else ""


def main(argv: Sequence[str]) -> int:
    """Build what is named."""
    if unknown := sorted(set(argv) - set(PARTS)):
        print(f"build: there is no {', '.join(unknown)}; there are: {', '.join(PARTS)}", file=sys.stderr)
        return 2
    parts = argv or USUAL
    OUT.mkdir(parents=True, exist_ok=True)
    trees = programs("x86_64") if {"wheels", "debs", "again"} & set(parts) else None
    if trees is not None:
        if "wheels" in parts:
            wheels("x86_64", trees, OUT)
        if "debs" in parts:
            debs.build(*trees, OUT, source_date())
        if "again" in parts:
            again(trees)
    if "image" in parts:
        image()
    if "aarch64" in parts:
        wheels("aarch64", programs("aarch64"), OUT)
    for path in sorted(OUT.glob("*.*")):
        if path.is_file():
            print(f"{path.stat().st_size / 1e6:8.1f} MB  {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
