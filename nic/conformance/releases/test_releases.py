"""The list of releases that today's urxe is held against, and what is said of those that cannot be built."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from . import builds
from .builds import ROOT, MissingError, Release, ReleaseError, build, check_commit, program, read

FIRST = (0, 2, 0)


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in version.split("."))


def test_the_list_has_each_release_of_the_changelog() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## (\d+\.\d+\.\d+)", changelog, re.MULTILINE)
    assert versions, "CHANGELOG.md has no release"
    listed = [release.version for release in read()]
    assert listed == sorted((each for each in versions if numbers(each) >= FIRST), key=numbers), (
        f"a release of CHANGELOG.md needs its line in {builds.HERE / 'releases.toml'}"
    )


@pytest.mark.parametrize("release", read(), ids=lambda release: release.version)
def test_the_commit_of_a_release_has_its_version(release: Release) -> None:
    try:
        check_commit(release)
    except MissingError as error:
        pytest.skip(str(error))
    shown = ["git", "show", f"{release.commit}:nic/Cargo.toml"]
    manifest = subprocess.run(shown, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert tomllib.loads(manifest)["workspace"]["package"]["version"] == release.version


def test_a_clone_without_the_commit_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    missing = Release("9.9.9", "0" * 40)
    for attempt in (program, build):
        with pytest.raises(MissingError, match=r"release 9\.9\.9, 000000000000, is not in this clone; `git fetch"):
            attempt(missing)
    assert not any(tmp_path.iterdir())


def test_a_release_that_was_not_built_says_what_builds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    with pytest.raises(MissingError, match="make setup-releases"):
        program(Release("9.9.9", head.strip()))


def test_a_build_that_fails_leaves_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    monkeypatch.setattr(builds, "CRATES", ("no-such-crate",))
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    release = Release("9.9.9", head.strip())
    with pytest.raises(ReleaseError, match="no-such-crate"):
        build(release)
    assert not release.folder.exists()
