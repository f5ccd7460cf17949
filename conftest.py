"""Tests that `make test` lists and does not run: of real time, which only a quiet machine can run, and long ones."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--nightly` runs what takes long, too: `make test-all` does."""
    parser.addoption("--nightly", action="store_true", help="run the tests that take long, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip them, with a reason that scripts/suite_results.py knows, unless `-m quiet` or `--nightly` asks for them."""
    is_quiet = config.getoption("markexpr") == "quiet"
    for item in items:
        if not is_quiet and (mark := item.get_closest_marker("quiet")):
            item.add_marker(pytest.mark.skip(reason=f"quiet: {mark.kwargs['reason']}"))
        if not config.getoption("nightly") and (mark := item.get_closest_marker("nightly")):
            item.add_marker(pytest.mark.skip(reason=f"nightly: {mark.kwargs['reason']}"))
