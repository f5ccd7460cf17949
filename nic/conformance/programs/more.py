"""Programs that take minutes to build, on urxe: `make test-programs` runs them. The data is in more/*.toml."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import pytest

from .matrix import HERE, Entry, read
from .running import Job, Outcome
from .test_matrix import LIMIT_S, judge


@pytest.mark.fabric
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("entry", [pytest.param(entry, id=entry.id) for entry in read(HERE / "more")])
def test_program_that_takes_long_to_build(entry: Entry, outcomes: Mapping[Job, Future[Outcome]]) -> None:
    """Unmodified, as those of the matrix."""
    judge(outcomes[None, entry.id].result(LIMIT_S))
