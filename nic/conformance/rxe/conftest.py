"""The guests, for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .guest import Guest, GuestError, booted, in_its_own_namespace, make_bridge


@pytest.fixture(scope="session")
def bridge() -> None:
    """The link to the guests."""
    if not in_its_own_namespace():
        pytest.skip("this needs a network namespace of its own: `make interop`")
    make_bridge()


@pytest.fixture(scope="session")
def guest(bridge: None) -> Iterator[Guest]:
    """The first guest."""
    yield from _guest(1)


@pytest.fixture(scope="session")
def second_guest(bridge: None) -> Iterator[Guest]:
    """The second one."""
    yield from _guest(2)


def _guest(number: int) -> Iterator[Guest]:
    try:
        with booted(number) as running:
            print(f"guest {number}: Linux {running.kernel} with rxe")
            yield running
    except GuestError as error:
        pytest.skip(f"no guest with Linux rxe: {error}")
