"""Tests of real time, which only a quiet machine can run: `make test-quiet` does."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip them, with a reason that scripts/suite_results.py knows, unless `-m quiet` asks for them."""
    if config.getoption("markexpr") == "quiet":
        return
    for item in items:
        if mark := item.get_closest_marker("quiet"):
            item.add_marker(pytest.mark.skip(reason=f"quiet: {mark.kwargs['reason']}"))
