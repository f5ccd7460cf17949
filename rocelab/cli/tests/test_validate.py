"""``rocelab validate``."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.cli.validate import write_rows
from rocelab.profiles.series import sources
from rocelab.profiles.tests.made_up import MADE_UP
from rocelab.virtual.validation import hold

#: Longer than what the library copies.
TOO_LONG = MADE_UP.replace('"verbs"', '"mpi-ucx"').replace("[[2, 2.0]]", "[[16384, 9.0]]")
ERRORS = Path(__file__).resolve().parents[2] / "profiles" / "validation" / "errors.csv"


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
    assert "(1 source, 1 series): median" in done.output
    assert rows.read_text(encoding="utf-8").splitlines()[1].startswith("held out,mine,latency,A,latency,1,")
    assert figure.read_text(encoding="utf-8").startswith("<svg")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.toml", None, "none.toml: No such file or directory"),
        ("latin.toml", MADE_UP.replace("A page", "\u00c4").encode("latin-1"), "latin.toml: not UTF-8"),
        ("adapter.toml", MADE_UP.replace("roce-25g", "roce-26g").encode(), "series latency: there is no adapter"),
        ("sizes.toml", TOO_LONG.encode(), "all of its messages are longer than 8192 B"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(
    tmp_path: Path, name: str, content: bytes | None, said: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    done = CliRunner().invoke(app, ["validate", str(tmp_path / name), "--csv", str(tmp_path / "rows.csv")])
    assert done.exit_code == 1
    assert said in done.output
    assert not (tmp_path / "rows.csv").exists()


def test_two_files_of_one_name_are_not_taken_for_one(tmp_path: Path) -> None:
    paths = [tmp_path / folder / "mine.toml" for folder in ("a", "b")]
    for path in paths:
        path.parent.mkdir()
        path.write_text(MADE_UP, encoding="utf-8")
    done = CliRunner().invoke(app, ["validate", *map(str, paths)])
    assert (done.exit_code, "a source is called mine already" in done.output) == (1, True)
