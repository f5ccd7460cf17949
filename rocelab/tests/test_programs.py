"""Where rocelab's own programs are found, in a checkout and where it is installed."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest

from rocelab import programs


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of programs beside this Python, and a PATH without any."""
    folder = tmp_path / "bin"
    monkeypatch.setattr(sysconfig, "get_path", lambda _name: str(folder))
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for variable in ("ROCELAB_URXE", "ROCELAB_PROGRAMS", "ROCELAB_MPI_BENCH", "XDG_DATA_HOME"):
        monkeypatch.delenv(variable, raising=False)
    return folder


@pytest.fixture
def root(tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout."""
    root = tmp_path / "checkout"
    executable(root / "nic" / "Cargo.toml")
    monkeypatch.setattr(programs, "_PACKAGE", root / "rocelab")
    return root


@pytest.fixture
def package(tmp_path: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed package."""
    package = tmp_path / "site-packages" / "rocelab"
    monkeypatch.setattr(programs, "_PACKAGE", package)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return package


def test_a_checkout_uses_what_it_built_and_not_what_is_installed(root: Path, scripts: Path) -> None:
    installed = executable(scripts / "urxe")
    assert programs.own("urxe")[0] == str(installed)
    built = executable(root / "nic" / "target" / "release" / "urxe")
    assert programs.own("urxe")[0] == str(built)


def test_a_package_uses_what_is_installed_beside_its_python(package: Path, scripts: Path) -> None:
    assert programs.own("urxe") == (
        "urxe",
        "it is installed with rocelab: install that again, or name urxe in $ROCELAB_URXE",
    )
    installed = executable(scripts / "urxe")
    assert programs.own("urxe")[0] == str(installed)


def test_what_a_person_names_is_taken_and_nothing_in_its_place(
    root: Path, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executable(scripts / "urxe")
    monkeypatch.setenv("ROCELAB_URXE", "/elsewhere/urxe")
    name, remedy = programs.own("urxe")
    assert name == "/elsewhere/urxe"
    assert remedy.startswith("/elsewhere/urxe, which $ROCELAB_URXE names, is not there; build it with `make build`")


def test_data_comes_from_the_checkout_or_from_the_package(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (programs.studies(), programs.workloads()) == (root / "studies", root / "cloud" / "workloads")
    assert programs.fetched() == root / ".build" / "programs"
    monkeypatch.setattr(programs, "_PACKAGE", root / "site-packages" / "rocelab")
    assert programs.checkout() is None
    assert programs.studies() == root / "site-packages" / "rocelab" / "studies"


def test_a_package_without_a_checkout_says_what_has_it(package: Path, tmp_path: Path) -> None:
    assert programs.fetched() == tmp_path / "home" / ".local" / "share" / "rocelab" / ".build" / "programs"
    assert programs.remedy("make setup-programs", "ROCELAB_PROGRAMS") == (
        "a checkout of rocelab has it after `make setup-programs`: name its folder there in $ROCELAB_PROGRAMS"
    )
