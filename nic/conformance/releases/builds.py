"""Builds urxe as its releases have it, from the history of this clone: `.build/releases/<version>`.

Usage: builds.py

Nothing of a release can be downloaded, so its commit is built here, once. A clone without that commit goes on without
the release: what needs it is skipped, with the reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[2]
FOLDER: Final = ROOT / ".build" / "releases"
#: The crates that make the command and its library, which has to stand beside it.
CRATES: Final = ("urxe-cli", "urxe-preload")
FILES: Final = ("urxe", "liburxe.so")
#: Where a build says what it was made from.
STAMP: Final = "made-from"
#: A busy machine takes a quarter of an hour.
LIMIT_S: Final = 3600.0


class ReleaseError(Exception):
    """A release cannot be built. The text says why."""


class MissingError(ReleaseError):
    """A release is not there, and cannot be here or was not built yet. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Release:
    """A release of urxe."""

    version: str
    commit: str

    @property
    def folder(self) -> Path:
        """Where its files are once it is built."""
        return FOLDER / self.version

    @property
    def is_built(self) -> bool:
        """Whether it is there, from its commit."""
        stamp = self.folder / STAMP
        return stamp.exists() and stamp.read_text(encoding="ascii") == self.commit


def read(path: Path = HERE / "releases.toml") -> tuple[Release, ...]:
    """All releases, oldest first."""
    return tuple(Release(**each) for each in tomllib.loads(path.read_text(encoding="utf-8"))["releases"])


def program(release: Release) -> Path:
    """The command `urxe` of a release that has been built. Raises MissingError."""
    if not release.is_built:
        check_commit(release)
        raise MissingError(f"release {release.version} was not built yet; `make setup-releases` builds it")
    return release.folder / FILES[0]


def check_commit(release: Release) -> None:
    """Raise MissingError unless the commit of a release is in this clone."""
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{release.commit}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    if found.returncode:
        raise MissingError(
            f"the commit of release {release.version}, {release.commit[:12]}, is not in this clone; "
            "`git fetch --unshallow` gets the history that it is in"
        )


def build(release: Release) -> None:
    """Build a release from its commit. Raises ReleaseError.

    It appears complete or not at all: what was interrupted is removed by the next attempt.
    """
    check_commit(release)
    partial = release.folder.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)
    source, target, made = (partial / name for name in ("source", "target", "made"))
    for folder in (source, made):
        folder.mkdir(parents=True)
    archive = partial / "nic.tar"
    packages = [word for crate in CRATES for word in ("-p", crate)]
    for command in (
        ["git", "archive", "--output", str(archive), release.commit, "nic"],
        ["tar", "--extract", "--file", str(archive), "--directory", str(source)],
        ["cargo", "build", "--manifest-path", str(source / "nic" / "Cargo.toml"), "--locked", "--release", *packages],
    ):
        _run(command, target)
    for name in FILES:
        shutil.copy2(target / "release" / name, made)
    (made / STAMP).write_text(release.commit, encoding="ascii")
    shutil.rmtree(release.folder, ignore_errors=True)
    made.rename(release.folder)
    shutil.rmtree(partial)


def _run(command: list[str], target: Path) -> None:
    environment = {**os.environ, "CARGO_TARGET_DIR": str(target)}
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ReleaseError(f"{command[0]}: {error}") from error
    if done.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")


def main() -> int:
    """Build those that are not there."""
    status = 0
    for release in read():
        if release.is_built:
            continue
        print(f"setup: building release {release.version} of urxe", flush=True)
        try:
            build(release)
        except MissingError as error:
            print(f"setup: {error}; its tests will be skipped", flush=True)
        except ReleaseError as error:
            print(f"setup: release {release.version} cannot be built: {error}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
