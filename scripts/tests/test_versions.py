"""All parts have one version."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import rocelab

ROOT = Path(__file__).resolve().parents[2]
LOCKS = ["nic/Cargo.lock", "nic/fuzz/Cargo.lock"]


def toml(name: str) -> dict[str, Any]:
    return tomllib.loads((ROOT / name).read_text(encoding="utf-8"))


def found(pattern: str, name: str) -> str:
    match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
    assert match is not None, f"{name} has no version"
    return match[1]


def test_the_crates_have_the_version_of_rocelab() -> None:
    assert toml("nic/Cargo.toml")["workspace"]["package"]["version"] == rocelab.__version__
    for manifest in sorted((ROOT / "nic").glob("*/Cargo.toml")):
        package = tomllib.loads(manifest.read_text(encoding="utf-8"))["package"]
        if "workspace" not in tomllib.loads(manifest.read_text(encoding="utf-8")):
            assert package["version"] == {"workspace": True}, manifest


@pytest.mark.parametrize("name", LOCKS)
def test_the_locks_have_the_version_of_rocelab(name: str) -> None:
    crates = {each["name"]: each["version"] for each in toml(name)["package"] if "source" not in each}
    crates.pop("urxe-fuzz", None)
    assert {"urxe-wire", "urxe-proto", "urxe-cm"} <= set(crates)
    assert set(crates.values()) == {rocelab.__version__}, crates


def test_the_c_programs_have_the_version_of_rocelab() -> None:
    assert found(r'^#define ROCELAB_VERSION "(.*)"$', "bench/common/version.h") == rocelab.__version__


@pytest.mark.parametrize("program", ["net/main.c", "mpi/main.c", "nas/frame/main.c"])
def test_what_a_c_program_prints_begins_with_its_name_and_version(program: str, tmp_path: Path) -> None:
    # The line that --version prints, as the preprocessor leaves it.
    compiler = shutil.which("cc")
    assert compiler is not None
    bench = ROOT / "bench"
    source = (bench / program).read_text(encoding="utf-8")
    (printed,) = re.findall(r'puts\((".*" ROCELAB_VERSION)\);', source)
    (tmp_path / "line.c").write_text(
        f'#include "common/version.h"\n#include <stdio.h>\nint main(void){{puts({printed});}}\n'
    )
    assert '#include "common/version.h"\n' in source
    subprocess.run([compiler, f"-I{bench}", "-o", tmp_path / "line", tmp_path / "line.c"], check=True)
    said = subprocess.run([tmp_path / "line"], capture_output=True, text=True, check=True).stdout
    name = {"net": "rocelab-sock", "mpi": "rocelab-mpi", "nas": "rocelab-nas"}[program.partition("/")[0]]
    assert said == f"{name} {rocelab.__version__}\n"


def test_the_newest_release_in_the_changelog_is_this_version() -> None:
    assert found(r"^## (\d+\.\d+\.\d+) \(", "CHANGELOG.md") == rocelab.__version__


def test_documents_show_this_version() -> None:
    assert found(r"^UDP port 4791: urxe (\S+) answers$", "docs/urxe.md") == rocelab.__version__
    assert found(r'"suite": "rocelab-mpi (\S+)"', "bench/mpi/README.md") == rocelab.__version__
