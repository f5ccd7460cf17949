"""The guests, for all tests of a run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .guest import RXE, SIW, Guest, GuestError, booted, in_its_own_namespace, make_bridge
from .kernels import EVERY, SUITES

#: What was booted, for the end of the report.
BOOTED: list[str] = []


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the guests were."""
    for line in BOOTED:
        terminalreporter.write_line(line)


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


@pytest.fixture(scope="module", params=SUITES[1:])
def newer_guest(bridge: None, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """One with a newer kernel, of each release in turn."""
    yield from _guest(3, request.param)


@pytest.fixture(scope="module", params=EVERY)
def any_guest(bridge: None, request: pytest.FixtureRequest) -> Iterator[Guest]:
    """One with the kernel of each release in turn."""
    yield from _guest(4, request.param)


@pytest.fixture(scope="module")
def siw_guest(bridge: None) -> Iterator[Guest]:
    """One with Linux siw."""
    yield from _guest(5, link=SIW)


def _guest(number: int, suite: str = SUITES[0], link: str = RXE) -> Iterator[Guest]:
    try:
        with booted(number, suite, link) as running:
            processors = "with KVM" if running.emulated is None else f"emulated: {running.emulated}"
            BOOTED.append(f"guest {number}: Linux {running.kernel} with {link}, {processors}")
            yield running
    except GuestError as error:
        pytest.skip(f"no guest with the Linux {link} of {suite}: {error}")
