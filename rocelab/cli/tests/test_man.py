"""The manual pages have every command and option, and are valid."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from rocelab.cli import man
from rocelab.cli.app import app

PAGES = man.pages(get_command(app))


def test_each_command_has_a_page_with_all_its_options() -> None:
    assert {"rocelab.1", "rocelab-run.1", "rocelab-fabric-up.1"} <= PAGES.keys()
    assert "rocelab-man.1" not in PAGES, "packages call it, and no person"
    for name, page in PAGES.items():
        words = name.removesuffix(".1").split("-")[1:]
        shown = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "300", "TERM": "dumb"}).stdout
        options = set(re.findall(r"(?<!\S)--[a-z][a-z-]+", shown)) - {
            "--help",
            "--install-completion",
            "--show-completion",
        }
        plain = page.replace("\\-", "-")
        assert [option for option in sorted(options) if option not in plain] == [], name


@pytest.mark.parametrize("name", sorted(PAGES))
def test_groff_has_no_complaint(name: str, tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not installed: apt-get install groff-base")
    path = tmp_path / name
    path.write_text(PAGES[name], encoding="utf-8")
    checked = subprocess.run(
        ["groff", "-man", "-ww", "-Kutf8", "-Tutf8", path], capture_output=True, text=True, check=True, timeout=60
    )
    assert checked.stderr == ""
    assert name.removesuffix(".1") in checked.stdout


def test_they_are_written_to_a_folder_that_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "man1"
    result = CliRunner().invoke(app, ["man", "--out", str(folder)])
    assert result.exit_code == 0, result.output
    assert {path.name for path in folder.iterdir()} == PAGES.keys()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["man", "--out", str(tmp_path / "file" / "man1")])
    assert result.exit_code == 1
    assert "The manual pages cannot be written" in result.output


def test_what_roff_takes_for_requests_is_text() -> None:
    assert man._plain(".so is\n'no' request, C:\\x --y") == "\\&.so is\n\\&'no' request, C:\\ex \\-\\-y"
