"""``rocelab doctor``: what this machine can do, and what to install."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rocelab.doctor import Check

_STATES = {"ok": Text("ok", style="green"), "note": Text("note", style="yellow")}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Say what this machine can do: namespaces, programs, RDMA devices, busy cores, and what to install.

    The exit status is 1 only if something is missing without which the quick study cannot run.
    """
    from rocelab.doctor import examine, fit  # noqa: PLC0415 -- it loads every tool, for which other commands need not wait

    with Console(stderr=True).status("looking at this machine"):
        checks = examine()
    ready = fit(checks)
    if as_json:
        print(json.dumps({"fit": ready, "checks": [check.as_json() for check in checks]}, indent=2))  # noqa: T201
    else:
        _show(checks, ready=ready)
    raise typer.Exit(0 if ready else 1)


def _show(checks: Sequence[Check], *, ready: bool) -> None:
    console = Console()
    table = Table("", "", "", box=None, pad_edge=False, show_header=False)
    group = None
    for check in checks:
        if check.group != group:
            group = check.group
            table.add_row(Text(group, style="bold"))
        table.add_row(f"  {check.name}", _state(check), Text(check.found))
        if check.advice:
            table.add_row("", "", Text(f"-> {check.advice}", style="yellow"))
    console.print(table)
    console.print()
    packages = sorted({check.package for check in checks if check.package})
    if packages:
        console.print(
            f"What is missing comes with: apt-get install {' '.join(packages)}", soft_wrap=True, highlight=False
        )
    if ready:
        console.print("[green]The quick study can run here:[/green] rocelab run studies/quick.toml", highlight=False)
        return
    names = ", ".join(check.name for check in checks if check.required and check.state == "missing")
    console.print(f"[red]The quick study cannot run here yet.[/red] Missing: {names}", soft_wrap=True, highlight=False)


def _state(check: Check) -> Text:
    if check.state == "missing":
        return Text("missing", style="red") if check.required else Text("missing (optional)", style="dim")
    return _STATES[check.state]
