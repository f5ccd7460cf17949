"""Study files as no user should write them: each is a study or a StudyError with place and cause."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tomlkit
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rocelab.study.loading import parse
from rocelab.study.plan import plan
from rocelab.study.problems import StudyError

STUDIES = sorted((Path(__file__).resolve().parents[3] / "studies").glob("*.toml"))
TEXTS = [path.read_text(encoding="utf-8") for path in STUDIES]
#: How many studies each test makes that were never made before (`make fuzz`).
ANEW = os.environ.get("ROCELAB_RANDOM_STUDIES")
# Otherwise the same on every machine: what fails here fails there.
FIXED = settings(
    max_examples=int(ANEW or 40),
    derandomize=ANEW is None,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)

scalars = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["", "all", "tcp", "soft-roce", "latency", "0", "1 B", "../..", "é", "\x00", "ib_send_lat"]),
    st.dates(),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(min_size=1, max_size=8), inner, max_size=3),
    max_leaves=6,
)


def holds(text: str) -> None:
    """A text is a study with a plan, or a StudyError whose every line names the source."""
    try:
        study = parse(text, "some.toml")
    except StudyError as refused:
        said = str(refused)
    else:
        plan(study)
        return
    assert said.startswith("some.toml"), said


@FIXED
@given(st.text())
@example("\x00")
@example("[study]\nname = ")
@example("fabric = 1\nstudy = []\n")
def test_any_text_is_refused_with_reasons(text: str) -> None:
    holds(text)


@FIXED
@given(st.data())
def test_a_study_with_something_else_in_one_place(data: st.DataObject) -> None:
    document = tomlkit.parse(data.draw(st.sampled_from(TEXTS))).unwrap()
    places = list(_places(document))
    where, key = data.draw(st.sampled_from(places))
    what = data.draw(st.sampled_from(["replace", "remove", "add"]))
    value = data.draw(values)
    if what == "remove":
        del where[key]
    elif what == "add" and isinstance(where, dict):
        where[data.draw(st.text(min_size=1, max_size=8))] = value
    else:
        where[key] = value
    holds(tomlkit.dumps(document))


@FIXED
@given(st.data())
def test_a_study_with_some_characters_changed(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(TEXTS))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        gone = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.text(max_size=4)) + text[at + gone :]
    holds(text)


def _places(table: Any) -> list[tuple[Any, Any]]:
    """Every key of every table and every index of every list, with where it is."""
    keys = list(table) if isinstance(table, dict) else range(len(table)) if isinstance(table, list) else []
    found = [(table, key) for key in keys]
    for key in keys:
        found += _places(table[key])
    return found
