"""``rocelab accept``, as a person uses it."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from rocelab.cli.app import app
from rocelab.report.tests.synthetic import make_run

CRITERIA = """\
schema = 1
study = "quick"

[[threshold]]
test = "latency"
interconnect = "tcp"
variant = "blocking"
at_most = {at_most}
"""


@pytest.fixture
def results(tmp_path: Path) -> Path:
    make_run(tmp_path / "results", failures=False)
    return tmp_path / "results"


def accept(results: Path, at_most: float, *options: str) -> tuple[int, str]:
    path = results.parent / "site.toml"
    path.write_text(CRITERIA.format(at_most=at_most))
    done = CliRunner().invoke(app, ["accept", str(path), "--results", str(results), *options])
    return done.exit_code, done.output


def test_a_run_within_its_bounds_is_accepted(results: Path) -> None:
    status, said = accept(results, 1e9, "--run", "latest")
    assert status == 0
    assert said.startswith("Accepted: 46 of 46 checks passed")


def test_a_failure_has_a_line_for_each_violation_and_status_3(results: Path) -> None:
    status, said = accept(results, 50.0, "--run", "latest", "--junit", str(results.parent / "junit.xml"))
    assert status == 3
    assert "latency 4 MiB: " in said
    assert "wanted: at most 50.0 µs" in said
    assert "Not accepted" in said
    assert "<failure" in (results.parent / "junit.xml").read_text()


def test_a_file_that_is_wrong_is_said_with_its_line(results: Path) -> None:
    path = results.parent / "site.toml"
    path.write_text(CRITERIA.format(at_most="0"))
    done = CliRunner().invoke(app, ["accept", str(path), "--run", "latest", "--results", str(results)])
    assert done.exit_code == 1
    assert "site.toml:8: threshold[1].at_most" in done.output


def test_a_run_that_does_not_exist_is_said(results: Path) -> None:
    status, said = accept(results, 50.0, "--run", "nothing")
    assert status == 1
    assert "no run 'nothing'" in said


@pytest.mark.fabric
def test_a_study_is_run_on_the_emulated_fabric_and_judged(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        'schema = 1\nid = "small"\ntitle = "Small"\nrepetitions = 1\n[tcp]\ncongestion_control = ["default"]\n'
        '[[link]]\nid = "eth"\nkind = "bridge"\nrate_mbps = 100\n'
        '[[test]]\ntest = "bandwidth"\nsizes_bytes = [65536]\n[test.variants]\ntcp = ["blocking"]\n'
    )
    (tmp_path / "site.toml").write_text(
        f'schema = 1\nstudy = "{tmp_path}/study.toml"\nfabric = "emulated"\n'
        '[[threshold]]\ntest = "bandwidth"\nat_least_of_rate = 0.2\n'
        '[[threshold]]\ntest = "bandwidth"\nat_least = 200\n'
    )
    options = ["--results", str(tmp_path / "results"), "--prometheus", str(tmp_path / "rocelab.prom")]
    done = CliRunner().invoke(app, ["accept", str(tmp_path / "site.toml"), *options])
    assert done.exit_code == 3, done.output
    assert "Not accepted: 1 of 2 checks passed" in done.output
    assert "rocelab_acceptance_violations 1" in (tmp_path / "rocelab.prom").read_text()
