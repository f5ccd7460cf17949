"""``rocelab validate``."""

from __future__ import annotations

import io
from pathlib import Path

from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.cli.validate import write_rows
from rocelab.profiles.series import sources
from rocelab.virtual.validation import hold

ERRORS = Path(__file__).resolve().parents[2] / "profiles" / "validation" / "errors.csv"
MADE_UP = """\
title = "A page"
setup = {}
inferred = []

[[series]]
id = "latency"
grade = "A"
tool = "ib_read_lat"
metric = "latency"
operation = "read"
unit = "us"
column = "t_typical"
adapter = "roce-25g"
host = "sandy-bridge-ep"
stack = "verbs"
path_mtu_bytes = 1024
points = [[2, 2.0]]
"""


def test_the_document_has_the_errors_of_these_profiles() -> None:
    # If this fails for a reason: rocelab validate --csv, into that file, and make tables.
    written = io.StringIO()
    write_rows(hold(list(sources().values())), written)
    assert written.getvalue() == ERRORS.read_text(encoding="utf-8")


def test_series_of_ones_own_are_held_too(tmp_path: Path) -> None:
    path, rows, figure = tmp_path / "mine.toml", tmp_path / "rows.csv", tmp_path / "figure.svg"
    path.write_text(MADE_UP, encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", str(path), "--csv", str(rows), "--figure", str(figure)])
    assert done.exit_code == 0, done.output
    assert "(1 series): median" in done.output
    assert rows.read_text(encoding="utf-8").splitlines()[1].startswith("held out,mine,latency,A,latency,1,")
    assert figure.read_text(encoding="utf-8").startswith("<svg")


def test_a_wrong_file_is_said_and_nothing_is_written(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["validate", str(tmp_path / "none.toml"), "--csv", str(tmp_path / "rows.csv")])
    assert done.exit_code == 1
    assert not (tmp_path / "rows.csv").exists()
