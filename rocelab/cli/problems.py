"""How a command says that something is wrong."""

from __future__ import annotations

from typing import NoReturn

import typer
from rich.console import Console


def fail(command: str, problem: Exception | str, status: int = 1) -> NoReturn:
    """Print the problem to standard error, as it is, and end with this exit status."""
    say(f"rocelab {command}: {problem}")
    raise typer.Exit(status)


def say(text: str) -> None:
    """Print a line to standard error. Paths and commands in it come out whole, to be copied."""
    Console(stderr=True).print(text, soft_wrap=True, markup=False, highlight=False)
