"""`rocelab man`: the manual pages, made from the same definitions as `--help`.

click-man makes such pages of click's commands, but typer's are of a click of its own, whose options it passes over.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

import rocelab

SECTION = 1
#: What stands at the foot of each page.
_MANUAL = "Benchmarks of RDMA and TCP"


def man(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="The folder to write them to, which is made if it is not there.")],
) -> None:
    """Write the manual pages, for packages."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, page in pages(context.find_root().command).items():
            (out / name).write_text(page, encoding="utf-8")
    except OSError as error:
        typer.echo(f"The manual pages cannot be written: {error}", err=True)
        raise typer.Exit(1) from None


def pages(root: Any) -> dict[str, str]:
    """The pages of a command of typer and of all below it: what each file is called, and its text in roff."""
    commands = dict(_commands(root, ("rocelab",)))
    return {f"{'-'.join(words)}.{SECTION}": _page(words, each, commands) for words, each in commands.items()}


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    for name, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from _commands(each, (*words, name))


def _page(words: Sequence[str], command: Any, commands: dict[tuple[str, ...], Any]) -> str:
    help_text = textwrap.dedent(command.help or "").strip()
    summary, _, rest = help_text.partition("\n\n")
    title, version = "-".join(words), f"rocelab {rocelab.__version__}"
    lines = [
        f'.TH "{title.upper()}" "{SECTION}" "" "{version}" "{_MANUAL}"',
        ".nh",  # words of commands are not to be divided
        ".SH NAME",
        f"{_plain(title)} \\- {_plain(' '.join(summary.split()).removesuffix('.'))}",
        ".SH SYNOPSIS",
        f".B {_plain(' '.join(words))}",
        _plain(_usage(command)),
    ]
    described = [_plain(" ".join(part.split())) for part in (summary, *rest.split("\n\n")) if part.strip()]
    lines += [".SH DESCRIPTION", "\n.PP\n".join(described)]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    for heading, params in (("ARGUMENTS", arguments), ("OPTIONS", options)):
        if params:
            lines += [f".SH {heading}", *(line for each in params for line in _parameter(each))]
    below = [(path, each) for path, each in commands.items() if path[:-1] == tuple(words)]
    if below:
        lines.append(".SH COMMANDS")
        for path, each in below:
            short = " ".join((each.help or "").strip().partition("\n\n")[0].split())
            lines += [".TP", f".BR {_plain('-'.join(path))} ({SECTION})", _plain(short)]
    if command.epilog:
        lines += [".SH NOTES", _plain(command.epilog)]
    others = [f"{'-'.join(path)}({SECTION})" for path in commands if path != tuple(words)]
    lines += [".SH SEE ALSO", _plain(", ".join(others))]
    return "\n".join(lines) + "\n"


def _usage(command: Any) -> str:
    if getattr(command, "commands", None):
        return "[OPTIONS] COMMAND [ARGS]..."
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    return " ".join(["[OPTIONS]", *(_metavar(each) if each.required else f"[{_metavar(each)}]" for each in arguments)])


def _metavar(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    return f"{name}..." if parameter.nargs == -1 and not name.endswith("...") else name


def _parameter(parameter: Any) -> Iterator[str]:
    if parameter.param_type_name == "argument":
        shown = _metavar(parameter)
    else:
        shown = ", ".join((*parameter.opts, *parameter.secondary_opts))
        shown += "" if parameter.is_flag else f" {_metavar(parameter)}"
    yield ".TP"
    yield f".B {_plain(shown)}"
    text = " ".join((parameter.help or "").split())
    default = parameter.default
    if default not in (None, False) and not callable(default) and isinstance(default, str | int | float | Path):
        text += f" Without it: {default}."
    yield _plain(text.strip())


def _plain(text: str) -> str:
    """Text for roff: none of it is a request, and what looks like an option can be copied as one."""
    escaped = text.replace("``", "`").replace("\\", r"\e").replace("-", r"\-")
    return re.sub(r"^(?=[.'])", r"\\&", escaped, flags=re.MULTILINE)
