"""The userlands of other distributions: when they are made, and what is said where they cannot be."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from . import roots


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> roots.Root:
    monkeypatch.setattr(roots, "FOLDER", tmp_path / "roots")
    monkeypatch.setattr(roots, "_check_that_it_can_be_made", lambda root: None)
    return roots.ROOTS[0]


def unpacks(monkeypatch: pytest.MonkeyPatch, contents: str) -> None:
    def unpack(root: roots.Root, partial: Path) -> None:
        (partial / "usr" / "bin").mkdir(parents=True)
        (partial / "usr" / "bin" / "program").write_text(contents)

    monkeypatch.setattr(roots, "_unpack", unpack)


def test_a_root_is_made_once(root: roots.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacks(monkeypatch, "first")
    assert roots.main([]) == 0
    unpacks(monkeypatch, "second")
    assert roots.main([]) == 0
    program = roots.find(root.name).which("program")
    assert program is not None
    assert program.read_text() == "first"


def test_a_root_is_made_again_when_other_packages_are_wanted(root: roots.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    unpacks(monkeypatch, "first")
    roots.main([])
    monkeypatch.setattr(roots, "PACKAGES", ("another",))
    with pytest.raises(roots.RootError, match="make setup-distros"):
        roots.find(root.name)
    unpacks(monkeypatch, "second")
    roots.main([])
    program = roots.find(root.name).which("/usr/bin/program")
    assert program is not None
    assert program.read_text() == "second"


def test_what_was_interrupted_is_no_root_and_in_nobodys_way(root: roots.Root, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(root: roots.Root, partial: Path) -> None:
        (partial / "usr").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(roots, "_unpack", interrupted)
    with pytest.raises(KeyboardInterrupt):
        roots.main([])
    with pytest.raises(roots.RootError):
        roots.find(root.name)
    unpacks(monkeypatch, "whole")
    assert roots.main([]) == 0
    assert roots.find(root.name).is_made


def test_why_a_root_cannot_be_made_is_told_again(
    root: roots.Root, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def impossible(root: roots.Root, partial: Path) -> None:
        raise roots.RootError("the moon is full")

    monkeypatch.setattr(roots, "_unpack", impossible)
    assert roots.main([]) == 0
    assert "the moon is full; its tests will be skipped" in capsys.readouterr().out
    with pytest.raises(roots.RootError, match="the moon is full; `make setup-distros` makes it"):
        roots.find(root.name)
    assert roots.main(["--must"]) == 1


def test_without_a_mirror_there_is_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "FOLDER", tmp_path)
    monkeypatch.setattr(roots, "MIRROR", "http://127.0.0.1:9/debian")
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(roots, "KEYS", tmp_path)
    with pytest.raises(roots.RootError, match=r"127\.0\.0\.1:9.*cannot be read .*\$ROCELAB_DEBIAN_MIRROR"):
        roots.make(roots.ROOTS[0])


def test_a_script_that_ends_at_two_dashes_runs_a_roots_command(tmp_path: Path) -> None:
    words = roots.ROOTS[0].inside(["program", "--", "x"], [tmp_path, roots.ROOT])
    separator = words.index("--")
    assert words[separator + 1 :] == ["program", "--", "x"]
    folders = [str(roots.ROOT), str(tmp_path)]
    assert [word for word in words[:separator] if word in folders] == folders


def test_a_program_in_a_root_sees_its_files_and_this_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The root is a copy of this machine's shell and what that needs: no network is there for it."""
    own = ["unshare", "--map-root-user", "true"]
    if subprocess.run(own, capture_output=True, check=False).returncode != 0:
        pytest.skip("this machine allows no namespaces")
    monkeypatch.setattr(roots, "FOLDER", tmp_path / "roots")
    root = roots.Root("copy")
    for name in ("bin", "lib", "lib64"):
        if Path("/", name).is_symlink():
            root.path.mkdir(parents=True, exist_ok=True)
            (root.path / name).symlink_to(f"usr/{name}")
    (root.path / "etc").mkdir(parents=True)
    (root.path / "etc" / "mark").write_text("in the root\n")
    mine = tmp_path / "mine"
    mine.write_text("of this machine\n")
    script = f"cat /etc/mark {mine}; test -e /proc/self && echo proc"
    command = root.inside(["sh", "-c", script], [Path("/usr"), tmp_path])
    done = subprocess.run(["unshare", "--map-root-user", *command], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("in the root\nof this machine\nproc\n", "")
