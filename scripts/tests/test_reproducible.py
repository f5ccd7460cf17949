"""What is built reproducibly names no place of the build; differences are named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from reproducible import ROOT, differences, places

REPRODUCIBLY = ROOT / "scripts" / "reproducibly"
SOURCE = """
#include <stdio.h>
int main(void) { puts(__FILE__); return 0; }
"""


def environment(**more: str) -> dict[str, str]:
    alone = {"RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CFLAGS", "CARGO_HOME", "CARGO_TARGET_DIR", "SOURCE_DATE_EPOCH"}
    return {name: value for name, value in os.environ.items() if name not in alone} | more


def built(target: Path, cargo_home: Path) -> bytes:
    """A program in C whose source is below the target folder, as what build scripts generate is."""
    target.mkdir(parents=True)
    source = target / "program.c"
    source.write_text(SOURCE)
    done = subprocess.run(
        [REPRODUCIBLY, "sh", "-c", f"cc $CFLAGS -g -o {target}/program {source} && {target}/program"],
        env=environment(CARGO_TARGET_DIR=str(target), CARGO_HOME=str(cargo_home)),
        cwd=target,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "/usr/src/rocelab/nic/target/program.c\n"
    return (target / "program").read_bytes()


def test_the_place_of_a_build_is_not_in_a_program(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "real" / "place", target_is_directory=True)
    (tmp_path / "real" / "place").mkdir(parents=True)
    one = built(tmp_path / "one" / "target", tmp_path / "cargo")
    assert one == built(tmp_path / "link" / "another" / "target", tmp_path / "link")
    assert str(tmp_path).encode() not in one


def test_rustc_is_told_the_same_after_the_users_own_flags(tmp_path: Path) -> None:
    done = subprocess.run(
        [REPRODUCIBLY, "sh", "-c", 'printf %s "$CARGO_ENCODED_RUSTFLAGS"'],
        env=environment(RUSTFLAGS="-C target-cpu=native", CARGO_HOME=str(tmp_path)),
        capture_output=True,
        text=True,
        check=True,
    )
    flags = done.stdout.split("\x1f")
    assert flags[:2] == ["-C", "target-cpu=native"]
    assert flags[2:5] == [
        f"--remap-path-prefix={ROOT}=/usr/src/rocelab",
        f"--remap-path-prefix={tmp_path}=/usr/src/cargo",
        f"--remap-path-prefix={ROOT}/nic/target=/usr/src/rocelab/nic/target",
    ]


def test_a_command_that_fails_fails() -> None:
    assert subprocess.run([REPRODUCIBLY, "sh", "-c", "exit 7"], check=False).returncode == 7


def test_two_places_have_no_folder_in_common(tmp_path: Path) -> None:
    one, other = (place.relative_to(tmp_path) for place in places(tmp_path))
    assert not set(one.parts) & set(other.parts)


@pytest.mark.parametrize(
    ("second", "says"), [(b"abcd", []), (b"abXd", ["from byte 2 on"]), (b"abc", ["from byte 3 on"])]
)
def test_a_difference_is_named_by_its_place(second: bytes, says: list[str], tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_bytes(b"abcd")
    two.write_bytes(second)
    found = differences(one, two, "/no/such/folder")
    assert len(found) == len(says)
    assert all(words in line for words, line in zip(says, found, strict=True))
    assert f"{one} names bc" in differences(one, two, "bc")


def test_sections_that_differ_are_named(tmp_path: Path) -> None:
    for name, text in (("one", "this"), ("two", "that")):
        source = f'const char text[] = "{text}"; int main(void) {{ return text[0]; }}'
        command = ["cc", "-x", "c", "-Wl,--build-id=none", "-o", str(tmp_path / name), "-"]
        subprocess.run(command, input=source, text=True, check=True)
    found = differences(tmp_path / "one", tmp_path / "two", "/no/such/folder")
    assert found[1:] == ["  section .rodata differs"]
