"""What is said on a machine without apt-get."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "setup_packages"
NEEDED = ("bash", "env", "dirname", "awk", "grep", "sed")


@pytest.mark.parametrize(
    ("manager", "said"),
    [
        ("dnf", "sudo dnf install gcc make python3 libibverbs-utils"),
        ("zypper", "sudo zypper install gcc make"),
        ("pacman", "sudo pacman -S --needed gcc make python rdma-core"),
        ("apk", "nothing: liburxe.so needs glibc"),
        (None, "what your distribution calls these: gcc"),
    ],
)
def test_other_distributions_get_the_line_for_their_package_manager(
    tmp_path: Path, manager: str | None, said: str
) -> None:
    for name in NEEDED:
        found = shutil.which(name)
        assert found is not None
        (tmp_path / name).symlink_to(found)
    if manager is not None:
        (tmp_path / manager).touch(mode=0o755)
    done = subprocess.run([SCRIPT, "run"], env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert f"setup:   {said}" in done.stdout
    assert str(tmp_path) not in done.stdout
