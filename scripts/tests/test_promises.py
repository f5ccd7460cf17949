"""The pages of promises are what their data gives, and the tests that it names exist."""

from __future__ import annotations

from pathlib import Path

import pytest

import promises


def test_the_pages_are_what_the_data_gives() -> None:
    assert promises.stale(promises.groups()) == [], "run `make tables`"


@pytest.mark.parametrize("path", sorted(promises.DATA.glob("*.toml")), ids=lambda path: path.stem)
def test_every_test_that_is_named_exists_and_is_run(path: Path) -> None:
    for verb in promises.group(path).verbs:
        for promise in verb.promises:
            for test in promise.tests:
                promises.check_test(test)


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("c/nosuch:main", r"there is no nic/preload/tests/c/nosuch\.c"),
        ("c/devices:check_nothing", r"devices\.c has no such test"),
        ("proto/state:mask", r"state\.rs has no such test"),
        ("elsewhere/state:mask", r"one of the places c, preload"),
    ],
)
def test_a_test_that_does_not_exist_is_named(test: str, reason: str) -> None:
    with pytest.raises(promises.MistakeError, match=reason):
        promises.check_test(test)


def test_what_is_not_kept_is_counted_and_shown() -> None:
    kept = promises.Promise(says="that", tests=("c/devices:main",), differs="", broken="")
    broken = promises.Promise(says="this", tests=(), differs="", broken="it does not")
    part = promises.Group("Verbs", "verbs", (promises.Verb("ibv_one, ibv_two", (kept, broken)),))
    text = promises.index([part])
    assert "2 promises: 1 have a test, 0 are different on purpose, and 1 is not kept." in text
    assert "| [Verbs](promises/verbs.md) | 2 | 1 | 0 | 1 |" in text
    text = promises.page(part)
    assert "## `ibv_one`, `ibv_two`" in text
    assert "| that | [main](../../nic/preload/tests/c/devices.c) |  |" in text
    assert "| this | no test | **not kept:** it does not |" in text


def test_a_word_that_is_none_of_a_promise_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "1_odd.toml"
    path.write_text('title = "Odd"\n[[verbs]]\nname = "x"\npromises = [{ says = "a", test = "c/devices:main" }]\n')
    with pytest.raises(promises.MistakeError, match=r"1_odd\.toml, x: a promise has no test"):
        promises.group(path)
