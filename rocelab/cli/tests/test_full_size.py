"""``rocelab run --full-size``: what is said before anything runs, and where it does not start."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.cli.full_size import words
from rocelab.study.needs import Needs
from rocelab.study.scaling import switched
from rocelab.study.tests.test_full_size import TEXT


def asked(tmp_path: Path, *arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["run", "--results", str(tmp_path / "results"), *arguments])
    return result.exit_code, result.output + result.stderr


def test_time_memory_and_disk_are_said() -> None:
    assert words(Needs(7200, 3 << 30, 5 << 20)) == "about 2 h 0 min, 3.0 GiB of memory and 5 MiB of disk"
    assert "little memory" in words(Needs(60, 0, 1))


def test_a_machine_that_is_too_small_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = tmp_path / "s.toml"
    study.write_text(TEXT, encoding="utf-8")
    small = type("Memory", (), {"available": 2 << 30})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: small)
    status, said = asked(tmp_path, str(study), "--full-size")
    assert status == 1
    assert "At full size: about" in said
    assert "This machine has 2.0 GiB of memory available" in said
    assert "not started, for this machine has too little memory" in said
    assert not (tmp_path / "results").exists()


def test_a_file_that_asks_for_its_full_size_itself_is_estimated_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "s.toml"
    study.write_text(switched(TEXT), encoding="utf-8")
    small = type("Memory", (), {"available": 2 << 30})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: small)
    status, said = asked(tmp_path, str(study))
    assert status == 1
    assert "not started, for this machine has too little memory" in said


def test_a_study_without_a_larger_source_says_so(tmp_path: Path) -> None:
    study = tmp_path / "s.toml"
    plain = TEXT.replace("[full_size]\nrepetitions = 3\nnodes = 5\n", "")
    study.write_text(plain.replace("full_size = { sizes_bytes = [10000000000] }\n", ""), encoding="utf-8")
    status, said = asked(tmp_path, str(study), "--full-size")
    assert status == 1
    assert "s does not say how large its source was" in said


def test_a_simulated_study_has_the_rates_of_its_source(tmp_path: Path) -> None:
    status, said = asked(tmp_path, "vienne2012", "--full-size")
    assert status == 1
    assert "vienne2012 is simulated" in said


def test_a_run_keeps_its_sizes_when_it_goes_on(tmp_path: Path) -> None:
    status, said = asked(tmp_path, "--resume", "latest", "--full-size")
    assert status == 1
    assert "leave out --full-size" in said
