"""What is installed, and what wheels carry."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASE = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "nic" / "target")) / "release"


def install(prefix: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "packaging" / "install_urxe", RELEASE, prefix], capture_output=True, text=True, check=False
    )


def test_an_installed_urxe_finds_its_library_and_brings_its_pages(tmp_path: Path) -> None:
    if not (RELEASE / "urxe").exists():
        pytest.skip("SKIPPED: urxe is not built (make build)")
    done = install(tmp_path / "usr")
    assert done.returncode == 0, done.stderr
    files = {str(path.relative_to(tmp_path / "usr")) for path in tmp_path.rglob("*") if path.is_file()}
    assert {
        "bin/urxe", "lib/urxe/liburxe.so", "share/man/man1/urxe.1", "share/man/man1/urxe-run.1",
        "share/bash-completion/completions/urxe", "share/zsh/site-functions/_urxe",
    } <= files  # fmt: skip
    environment = {name: value for name, value in os.environ.items() if name not in {"URXE_LIBRARY", "LD_PRELOAD"}}
    command = [tmp_path / "usr" / "bin" / "urxe", "run", "--", "printenv", "LD_PRELOAD"]
    preloaded = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert preloaded.stdout.strip().endswith("usr/lib/urxe/liburxe.so")


def test_what_is_not_built_is_said(tmp_path: Path) -> None:
    done = subprocess.run(
        [ROOT / "packaging" / "install_urxe", tmp_path, tmp_path / "usr"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "has no urxe: build it first with `make build`" in done.stderr


def wheel(tmp_path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "out")]
    return subprocess.run(
        command,
        cwd=ROOT / "nic" / "python",
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_wheel_carries_programs_and_data_for_its_platform(tmp_path: Path) -> None:
    for name in ("bin/urxe", "lib/urxe/liburxe.so", "share/man/man1/urxe.1"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name, encoding="utf-8")
    done = wheel(tmp_path, ROCELAB_WHEEL_TREE=str(tmp_path / "tree"), ROCELAB_WHEEL_PLATFORM="manylinux_2_28_x86_64")
    assert done.returncode == 0, done.stderr
    [made] = (tmp_path / "out").glob("urxe-*-py3-none-manylinux_2_28_x86_64.whl")
    names = {name.partition(".data/")[2] or name for name in zipfile.ZipFile(made).namelist()}
    assert {"scripts/urxe", "data/lib/urxe/liburxe.so", "data/share/man/man1/urxe.1", "urxe/pytest_plugin.py"} <= names


def test_a_wheel_with_programs_says_its_platform(tmp_path: Path) -> None:
    done = wheel(tmp_path, ROCELAB_WHEEL_TREE=str(tmp_path), ROCELAB_WHEEL_PLATFORM="")
    assert done.returncode != 0
    assert "ROCELAB_WHEEL_PLATFORM has to say for which platform" in done.stderr
