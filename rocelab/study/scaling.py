"""A study at the sizes of its source: what its tables say under `full_size` takes the place of their other keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

KEY: Final = "full_size"
SWITCH: Final = "at_full_size"


def has_full_size(data: Mapping[str, Any]) -> bool:
    """Whether a study, as its file has it, says how large its source was."""
    return KEY in data or any(KEY in test for test in _tests(data))


def at_full_size(data: Mapping[str, Any]) -> dict[str, Any]:
    """The study, as its file has it, at those sizes: of the study, and of each of its tests."""
    whole = data.get(KEY)
    changed = dict(data)
    of_study = dict(whole) if isinstance(whole, dict) else {}
    if "nodes" in of_study:
        fabric = data.get("fabric")
        changed["fabric"] = (fabric if isinstance(fabric, dict) else {}) | {"nodes": of_study.pop("nodes")}
    changed |= of_study
    changed["test"] = [_larger(test, "repetitions" in of_study) for test in _tests(data)]
    return changed


def switched(text: str) -> str:
    """The text of a study file that runs at the sizes of its source: a key before all tables."""
    return f"{SWITCH} = true\n{text}"


def _tests(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    tests = data.get("test")
    return [test for test in tests if isinstance(test, dict)] if isinstance(tests, list) else []


def _larger(test: Mapping[str, Any], all_repeat: bool) -> dict[str, Any]:
    # As often as the source repeated everything.
    kept = {name: value for name, value in test.items() if not (all_repeat and name == "repetitions")}
    own = test.get(KEY)
    return kept | (own if isinstance(own, dict) else {})
