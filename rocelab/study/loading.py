"""Reads a study file. What is wrong in it is reported all at once, each with its line, its key and what is allowed."""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import pydantic
from pydantic_core import ErrorDetails

from rocelab import peers
from rocelab.fabric import plan as fabric_plan
from rocelab.fabric.base import FabricError
from rocelab.fabric.emulated import default_names
from rocelab.study.levels import level_of, wrong_variants
from rocelab.study.positions import line_of
from rocelab.study.problems import WRONG_FILE, Problem, StudyError, Wrong, dotted, unknown
from rocelab.study.scaling import at_full_size, has_full_size
from rocelab.study.schema import (
    CLOUD_TAGS,
    FLOWS_TAG,
    LEVEL_TAGS,
    MESH_TAG,
    SHARING_TAG,
    SIDE_BY_SIDE_TAG,
    AnyTest,
    Study,
)
from rocelab.study.sharing_tables import SharingTable
from rocelab.tools.interconnects import INTERCONNECTS

TableT = TypeVar("TableT", bound=pydantic.BaseModel)

_CONTROL = re.compile(r"[a-z0-9][a-z0-9_-]{0,14}")

#: Names of the two ways to give sizes; pydantic puts them into paths, no file has them.
_CHOICES = frozenset(
    {
        *("range", "list", MESH_TAG, SHARING_TAG, SIDE_BY_SIDE_TAG, FLOWS_TAG),
        *LEVEL_TAGS.values(),
        *CLOUD_TAGS.values(),
    }
)


def load(path: Path, known_claims: Collection[str] = ()) -> tuple[Study, str]:
    """The study in a file, and the file's text. Raises StudyError."""
    text = read(path)
    return parse(text, str(path), known_claims), text


def read(path: Path) -> str:
    """The text of a study file. Raises StudyError."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(str(path), [Problem(0, "", error.strerror or str(error))]) from None
    except UnicodeDecodeError as error:
        raise StudyError(str(path), [Problem(0, "", f"not UTF-8 text (byte {error.start})")]) from None


def parse(text: str, source: str, known_claims: Collection[str] = ()) -> Study:
    """The study in a text. `source` stands in front of every problem; without `known_claims` claims go unchecked."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"at line (\d+)", str(error))
        line = int(at[1]) if at else text.count("\n") + 1
        raise StudyError(source, [Problem(line, "", f"not valid TOML: {error}")]) from None
    study = _checked(data, text, source, known_claims)
    # Both forms have to be in order, whichever is run.
    full = _checked(at_full_size(data), text, source, known_claims) if has_full_size(data) else study
    return full if study.at_full_size else study


def _checked(data: dict[str, Any], text: str, source: str, known_claims: Collection[str]) -> Study:
    try:
        study = Study.model_validate(data)
    except pydantic.ValidationError as error:
        problems = [problem_of(text, detail) for detail in error.errors()]
        raise StudyError(source, problems) from None
    problems = [Problem(line_of(text, path), dotted(path), what) for path, what in _contradictions(study, known_claims)]
    if problems:
        raise StudyError(source, problems)
    return study


def table_of(path: Path, model: type[TableT]) -> tuple[TableT, str]:
    """What is in another file of TOML, and its text. Raises StudyError, which says what is wrong and where."""
    text = read(path)
    try:
        return model.model_validate(tomllib.loads(text)), text
    except tomllib.TOMLDecodeError as error:
        raise StudyError(str(path), [Problem(0, "", f"not valid TOML: {error}")]) from None
    except pydantic.ValidationError as error:
        raise StudyError(str(path), [problem_of(text, detail, model) for detail in error.errors()]) from None


#: In our words: what pydantic calls these, and what of it to say.
_SAYINGS: Final = {"missing": "this key is missing", "too_short": "this is empty; it needs at least one entry"}


def problem_of(text: str, detail: ErrorDetails, root: type[pydantic.BaseModel] = Study) -> Problem:
    """What pydantic has to say about a study whose file is modelled by `root`."""
    path = tuple(part for part in detail["loc"] if part not in _CHOICES)
    line = line_of(text, path)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return Problem(line, dotted(path), unknown("key", str(path[-1]), _allowed_keys(detail["loc"][:-1], root)))
    if kind in _SAYINGS or kind == WRONG_FILE:
        return Problem(line, dotted(path), _SAYINGS.get(kind, detail["msg"]))
    if kind == "unknown_level":
        return Problem(line_of(text, (*path, "level")), dotted((*path, "level")), detail["msg"])
    if kind == "literal_error":
        expected = detail.get("ctx", {}).get("expected", "").replace("'", '"')
        return Problem(line, dotted(path), f"{_shown(detail['input'])} is not known; allowed: {expected}")
    if kind == "string_pattern_mismatch":
        return Problem(line, dotted(path), f"{_shown(detail['input'])}: only a to z, 0 to 9 and '-' are allowed")
    allowed = detail["msg"].removeprefix("Input should be ").removeprefix("Input should have ")
    return Problem(line, dotted(path), f"{_shown(detail['input'])} is not allowed; it should be {allowed}")


def _contradictions(study: Study, known_claims: Collection[str]) -> Iterator[Wrong]:
    """What no single key shows: names that refer to nothing, things said twice."""
    yield from _repeated("link", [link.id for link in study.link])
    for index, link in enumerate(study.link):
        try:
            fabric_plan.check([link.profile()], default_names(study.fabric.nodes))
        except FabricError as error:
            yield ("link", index, "kind"), str(error).removeprefix(f"link {link.id!r}: ")
    for index, claim in enumerate(study.claims):
        if known_claims and claim not in known_claims:
            yield ("claims", index), unknown("claim", claim, known_claims)
    for at, test in enumerate(study.test):
        yield from _dangling(study, at, test)
        yield from _too_many_nodes(study, at, test)
        yield from level_of(test).wrong(study, at, test)
    yield from _measured_twice(study)


def _too_many_nodes(study: Study, at: int, test: AnyTest) -> Iterator[Wrong]:
    nodes = study.nodes_of(test)
    # The flows of a mix say how many nodes it takes, and no key of its own.
    if nodes > study.fabric.nodes and not isinstance(test, SharingTable):
        yield ("test", at, "nodes"), f"{nodes} is more than the fabric has: fabric.nodes is {study.fabric.nodes}"
    for link in study.links_of(test):
        if link.kind == "direct" and nodes > fabric_plan.DIRECT_NODES:
            text = f"{link.id} is a direct link, which joins the first two nodes, and this test is about {nodes}"
            yield ("test", at, "links"), f"{text}; name other links here"


def _dangling(study: Study, at: int, test: AnyTest) -> Iterator[Wrong]:
    """Names in a test that refer to nothing."""
    links = [link.id for link in study.link]
    for link in test.links or ():
        if link not in links:
            yield ("test", at, "links"), unknown("link", link, links)
    if test.has_sizes and not test.every_size_bytes():
        yield ("test", at, "sizes_bytes"), "the range is empty: 'from' is larger than 'to'"
    for name in test.variants:
        if name not in INTERCONNECTS:
            yield ("test", at, "variants", name), unknown("interconnect", name, INTERCONNECTS)
        else:
            wrong = (*_wrong_controls(test, name), *wrong_variants(level_of(test), test, name, test.variants[name]))
            yield from ((("test", at, "variants", name), text) for text in wrong)


def _wrong_controls(test: AnyTest, name: str) -> Iterator[str]:
    """Congestion controls that a variant names itself."""
    for variant in test.variants[name]:
        control = peers.control_of(variant)
        if control is not None and name not in peers.OVER_TCP:
            have = " and ".join(peers.OVER_TCP)
            yield f"{variant}: only {have} have a congestion control; leave out what follows {peers.SEPARATOR!r}"
        elif variant.endswith(peers.SEPARATOR) or (control is not None and not _CONTROL.fullmatch(control)):
            allowed = f"a name such as 'cubic', or {peers.DEFAULT!r}"
            yield f"{variant}: {peers.SEPARATOR!r} is followed by a congestion control, {allowed}"


def _measured_twice(study: Study) -> Iterator[Wrong]:
    seen: set[tuple[object, ...]] = set()
    for at, test in enumerate(study.test):
        for name, variants in study.variants_of(test).items():
            cells = {
                (link.id, test.level, each, scale, name, variant, size_bytes)
                for link in study.links_of(test)
                for variant in variants
                for scale in test.scales(study.fabric.nodes)
                for each in dict.fromkeys(test.every_test)
                for size_bytes in test.points
            }
            if len(set(variants)) < len(variants) or cells & seen:
                yield (
                    ("test", at, "variants", name),
                    "the same variant is measured twice"
                    + (" at the same size" if test.has_sizes else "")
                    + " on the same link",
                )
            seen |= cells


def _repeated(table: str, names: Sequence[str]) -> Iterator[Wrong]:
    for index, name in enumerate(names):
        if name in names[:index]:
            yield (table, index, "id"), f"there is another {table} {name!r} before it"


def _allowed_keys(loc: Sequence[str | int], root: type[pydantic.BaseModel]) -> list[str]:
    """The keys of the table at a pydantic path."""
    annotation: Any = root
    for part in loc:
        if part in _CHOICES:
            annotation = _choice_in(annotation, str(part))
        elif isinstance(part, str):
            fields = {field.alias or name: field for name, field in _table_in(annotation).model_fields.items()}
            annotation = fields[part].annotation
    return [field.alias or name for name, field in _table_in(annotation).model_fields.items()]


def _table_in(annotation: Any) -> Any:
    """The one table (a pydantic model) somewhere in a type such as ``list[Table]``."""
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return annotation
    for argument in typing.get_args(annotation):
        found = _table_in(argument)
        if found is not None:
            return found
    return None


def _choice_in(annotation: Any, tag: str) -> Any:
    """The type with a tag, somewhere in a type that is a choice of tagged ones."""
    arguments = typing.get_args(annotation)
    if pydantic.Tag(tag) in arguments:
        return arguments[0]
    return next((found for argument in arguments if (found := _choice_in(argument, tag)) is not None), None)


def _shown(value: Any) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
