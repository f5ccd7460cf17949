"""The commands that documents and continuous integration name are there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMING = [
    *("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "CHANGELOG.md", ".ci/run"),
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")),
]
COMMAND = re.compile(r"\bmake (?:--keep-going |-k )?([a-z][a-z-]*)(?=[`\s;,.&]|$)")


def make(*arguments: str) -> str:
    # As from a shell, also where these tests are themselves run by make.
    alone = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL", "MFLAGS"}}
    done = subprocess.run(["make", *arguments], cwd=ROOT, env=alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr, "make has something to say about its Makefile"
    return done.stdout


@pytest.fixture(scope="module")
def targets() -> set[str]:
    """What `make help` lists."""
    return set(re.findall(r"^  make ([a-z-]+)", make("help"), re.MULTILINE))


def test_help_lists_what_a_newcomer_needs(targets: set[str]) -> None:
    assert {"eval", "test", "help", "setup", "build", "lint", "format", "bench", "fuzz", "docs", "clean"} <= targets
    assert make() == make("help"), "make alone prints the help"


@pytest.mark.parametrize("name", NAMING)
def test_every_command_that_is_named_exists(name: str, targets: set[str]) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    code = text if name == ".ci/run" else "\n".join(re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL))
    assert set(COMMAND.findall(code)) <= targets


def test_every_listed_command_can_be_planned(targets: set[str]) -> None:
    for target in sorted(targets - {"help"}):
        make("--dry-run", target)
