"""Finds the line of a key in a TOML text.

No maintained TOML library gives positions after parsing, but tomlkit writes a document back exactly as it was. So
this puts a mark in front of the key that is looked for, writes the document, and counts the lines before the mark.
"""

from __future__ import annotations

from collections.abc import Sequence

import tomlkit
from tomlkit.container import Container
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, Array, InlineTable, Item, Table

_MARK = "#<rocelab looks for this>\n"


def line_of(text: str, path: Sequence[str | int]) -> int:
    """The 1-based line of the key (or array element) at `path`; of the nearest thing around it if that is hidden.

    Parts of the path that the document does not have (the names of a choice, a missing key) are passed over.
    `text` must be valid TOML; 1 if nothing at all is found.
    """
    try:
        document = tomlkit.parse(text)
    except TOMLKitError:
        return 1
    marked = _innermost(document, path)
    if marked is None:
        return 1
    marked.trivia.indent = _MARK + marked.trivia.indent
    return document.as_string().partition(_MARK)[0].count("\n") + 1


def _innermost(document: Container, path: Sequence[str | int]) -> Item | None:
    """The deepest item on the path that is written on a line of its own."""
    found: Item | None = None
    here: object = document
    on_own_line = True
    for part in path:
        if isinstance(here, AoT | list) and isinstance(part, int) and part < len(here):
            here = here[part]
        elif isinstance(here, Container | Table | InlineTable | dict) and part in here:
            here = _item(here, str(part))
        else:
            continue
        if isinstance(here, Item) and on_own_line and not isinstance(here, AoT):
            found = here
        # What is inside an array or an inline table is found by the line on which that begins.
        on_own_line = on_own_line and not isinstance(here, Array | InlineTable)
    return found


def _item(table: Container | Table | InlineTable | dict[str, object], key: str) -> object:
    """What is under a key, as an item also if it is a boolean, which tomlkit else gives as a plain one."""
    container = table.value if isinstance(table, Table | InlineTable) else table
    return container.item(key) if isinstance(container, Container) else container[key]
