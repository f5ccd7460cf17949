"""No value of a profile changes in silence."""

from __future__ import annotations

from rocelab.profiles.freeze import changed_without_version, current, frozen


def test_every_profile_is_what_was_written_down() -> None:
    # If this fails: raise `version`, say why in docs/validation.md with all claims and series
    # before and after, and run python -m rocelab.profiles.freeze.
    assert current() == frozen()


def test_other_values_under_the_same_version_are_named() -> None:
    before = {"a": "1 aa", "b": "1 bb", "c": "1 cc"}
    after = {"a": "1 aa", "b": "2 xx", "c": "1 xx", "d": "1 dd"}
    assert changed_without_version(before, after) == ["c"]
