"""``rocelab report`` and ``rocelab compare`` as a person calls them."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from rocelab.cli.compare import compare
from rocelab.cli.report import report
from rocelab.report.tests.synthetic import make_run

app = typer.Typer()
app.command()(report)
app.command()(compare)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    for number in (1, 2):
        make_run(root, run_id=f"2026010{number}-run", seed=number, sizes_bytes=(1, 64, 4096), failures=False)
    return root


@pytest.mark.slow
def test_report_writes_the_page_and_says_where(results: Path) -> None:
    done = CliRunner().invoke(app, ["report", "20260101", "--results", str(results)])
    assert done.exit_code == 0, done.output
    page = results / "20260101-run" / "report" / "index.html"
    assert page.exists()
    assert str(page) in done.output.replace("\n", "")


def test_compare_shows_both_runs(results: Path) -> None:
    done = CliRunner().invoke(app, ["compare", "20260101", "latest", "--results", str(results), "--every-size"])
    assert done.exit_code == 0, done.output
    assert "20260101-run" in done.output
    assert "20260102-run" in done.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["report", "nothing"], "no run 'nothing'"),
        (["compare", "20260101", "nothing"], "no run 'nothing'"),
        (["compare", "20260101", "20260102", "--metric", "bogus"], "bandwidth_mbps"),
    ],
)
def test_mistakes_are_explained_and_end_with_1(results: Path, arguments: list[str], words: str) -> None:
    done = CliRunner().invoke(app, [*arguments, "--results", str(results)])
    assert done.exit_code == 1
    assert words in " ".join(done.output.split())


def test_a_damaged_run_is_explained(results: Path, tmp_path: Path) -> None:
    store = make_run(tmp_path, sizes_bytes=(64,), failures=False)
    with (store.path / "samples.ndjson").open("a") as file:
        file.write("{}\n")
    done = CliRunner().invoke(app, ["report", str(store.path)])
    assert done.exit_code == 1
    assert "samples.ndjson, line" in done.output.replace("\n", "")
