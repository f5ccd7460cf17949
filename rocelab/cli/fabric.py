"""``rocelab fabric``: emulated fabrics that stay, to try things on by hand."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console
from rich.table import Table

from rocelab.fabric import emulated, records
from rocelab.fabric.base import LINK_KINDS, FabricError, LaunchError, LinkProfile
from rocelab.fabric.records import Leftover, Record
from rocelab.launch import attached

app = typer.Typer(
    no_args_is_help=True,
    help="Emulated fabrics that stay, to try things on by hand: nodes in namespaces of this machine, and links.",
)

_DEFAULT_LINKS_TWO = (
    LinkProfile("direct", "direct"),
    LinkProfile("ethernet-1g", "bridge", mtu_bytes=1500, rate_mbps=1000),
)
_KEYS: Mapping[str, Callable[[str], float]] = {
    "mtu_bytes": int,
    "rate_mbps": float,
    "queue_bytes": int,
    "burst_bytes": int,
    "switch_queue_bytes": int,
    "nodes_per_switch": int,
    "uplink_rate_mbps": float,
    "loss_percent": float,
    "ecn_percent": float,
}
_LINK_HELP = (
    "A link, as ID=KIND[,KEY=VALUE...]. KIND is direct (the first two nodes, one cable), bridge (any number, one "
    "switch) or two-level (access switches below a spine); the keys, which docs/fabrics.md explains, are "
    f"{', '.join(_KEYS)}. May be repeated. "
    "Default: direct=direct and ethernet-1g=bridge,rate_mbps=1000; for other than two nodes only the second."
)


def _complete_name(incomplete: str) -> list[str]:
    return [record.name for record in records.records() if record.name.startswith(incomplete)]


@app.command()
def up(
    name: Annotated[str, typer.Argument(help="What to call the fabric.")] = "lab",
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes; they are called node0, node1, ...")] = 2,
    link: Annotated[list[str] | None, typer.Option(help=_LINK_HELP)] = None,
) -> None:
    """Make a fabric that stays until ``rocelab fabric down``, or until the machine restarts."""
    try:
        links = [parse_link(text) for text in link] if link else default_links(nodes)
        record = records.create(name, links, emulated.default_names(nodes))
    except FabricError as error:
        _fail("up", error)
    console = Console()
    console.print(f"Fabric {record.name} is up.", highlight=False)
    console.print(_nodes_table(record))
    first = record.nodes[0].name
    console.print(f"Run something on a node:  rocelab fabric exec {name} {first} -- COMMAND", highlight=False)
    console.print(f"Remove it:                rocelab fabric down {name}", highlight=False)


@app.command("exec", context_settings={"ignore_unknown_options": True})
def exec_(
    name: Annotated[str, typer.Argument(help="Which fabric.", autocompletion=_complete_name)],
    node: Annotated[str, typer.Argument(help="Which node of it.")],
    command: Annotated[
        list[str] | None, typer.Argument(help="What to run, after `--`. Without a command: your shell.")
    ] = None,
    cpu: Annotated[int | None, typer.Option(help="Pin the command to this core.")] = None,
) -> None:
    """Run a command on a node, with this terminal, and end with its exit status.

    What the command leaves running on the node ends with it.
    """
    try:
        with records.get(name).attach() as fabric:
            status = attached.run(
                fabric,
                fabric.node(node),
                command or [os.environ.get("SHELL", "sh")],
                cores=() if cpu is None else (cpu,),
            )
    except (FabricError, LaunchError) as error:
        _fail("exec", error)
    raise typer.Exit(status)


@app.command()
def down(
    names: Annotated[list[str] | None, typer.Argument(help="Which fabrics.", autocompletion=_complete_name)] = None,
    every: Annotated[
        bool, typer.Option("--all", help="All of yours, and whatever of earlier fabrics is left on this machine.")
    ] = False,
) -> None:
    """Remove fabrics, with every process, link and namespace of theirs. Fabrics of running studies are left alone."""
    console = Console()
    if bool(names) == every:
        _fail("down", FabricError("say which fabrics to remove, or --all; `rocelab fabric list` shows them"))
    try:
        chosen = records.records() if every else [records.get(name) for name in names or ()]
        removed = 0
        for record in chosen:
            if every and record.elsewhere and record.alive:
                console.print(
                    f"Left {record.name} alone: it was made elsewhere (outside this node or container).",
                    highlight=False,
                )
                continue
            records.remove(record)
            console.print(f"Removed fabric {record.name}.", highlight=False)
            removed += 1
        removed += _remove_leftovers(console) if every else 0
    except FabricError as error:
        _fail("down", error)
    if not removed:
        console.print("There was nothing to remove.")


def _remove_leftovers(console: Console) -> int:
    removed = 0
    for leftover in records.leftovers():
        if leftover.owner is not None:
            console.print(f"Left {leftover.name} alone: process {leftover.owner.pid} is using it.", highlight=False)
            continue
        records.end(leftover.keeper, leftover.name)
        console.print(f"Removed what was left of {leftover.name} (process {leftover.keeper.pid}).", highlight=False)
        removed += 1
    return removed


@app.command("list")
def list_(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Show the fabrics there are, also dead ones and those of running studies."""
    found, others = records.records(), records.leftovers()
    if as_json:
        print(json.dumps([*map(_record_json, found), *map(_leftover_json, others)], indent=2))  # noqa: T201
        return
    console = Console()
    if not found and not others:
        console.print("There is no fabric. Make one with: rocelab fabric up")
        return
    table = Table("NAME", "STATE", "NODES", "LINKS", "SINCE (UTC)", box=None, pad_edge=False)
    for record in found:
        state = "[green]up[/green]" if record.alive else "[red]dead[/red] (remove it with down)"
        links = ", ".join(describe_link(link) for link in record.links)
        table.add_row(
            record.name, state, str(len(record.nodes)), links, record.created_at.rstrip("Z").replace("T", " ")
        )
    for leftover in others:
        table.add_row(leftover.name, _leftover_state(leftover), "", "", "")
    console.print(table)


def default_links(nodes: int) -> list[LinkProfile]:
    """The links of the quick study, as far as that many nodes can have them."""
    return [link for link in _DEFAULT_LINKS_TWO if nodes == 2 or link.kind != "direct"]


def parse_link(text: str) -> LinkProfile:
    """``ethernet-1g=bridge,rate_mbps=1000`` as a link; FabricError says what is wrong in it."""
    link_id, equals, rest = text.partition("=")
    kind, *settings = rest.split(",")
    found = next((known for known in LINK_KINDS if known == kind), None)
    if not equals or found is None:
        kinds = f"{', '.join(LINK_KINDS[:-1])} or {LINK_KINDS[-1]}"
        raise FabricError(f"--link {text}: a link is ID=KIND[,KEY=VALUE...], and KIND is {kinds}")
    values: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in _KEYS:
            raise FabricError(f"--link {text}: {key!r} is not known; the keys are {', '.join(_KEYS)}")
        try:
            values[key] = _KEYS[key](value)
        except ValueError:
            raise FabricError(f"--link {text}: {key} needs a number, not {value!r}") from None
    return LinkProfile(link_id, found, **values)


def describe_link(link: LinkProfile) -> str:
    """A link in a few words."""
    rate = f", {link.rate_mbps:g} Mbps" if link.rate_mbps is not None else ""
    uplinks = f", uplinks {link.uplink_rate_mbps:g} Mbps" if link.uplink_rate_mbps is not None else ""
    loss = f", loses {link.loss_percent:g} % of packets" if link.loss_percent is not None else ""
    marks = f", marks from {link.ecn_percent:g} % of its rate" if link.ecn_percent is not None else ""
    return f"{link.id} ({link.kind}, MTU {link.mtu_bytes}{rate}{uplinks}{loss}{marks})"


def _nodes_table(record: Record) -> Table:
    table = Table("NODE", *(describe_link(link) for link in record.links), box=None, pad_edge=False)
    for node in record.nodes:
        ports = (
            f"{node.interfaces[link.id]} {node.addresses[link.id]}" if link.id in node.addresses else "none"
            for link in record.links
        )
        table.add_row(node.name, *ports)
    return table


def _leftover_state(leftover: Leftover) -> str:
    if leftover.owner is not None:
        return f"in use by process {leftover.owner.pid}"
    return "[red]left over[/red] (remove it with down --all)"


def _record_json(record: Record) -> dict[str, Any]:
    return {
        "name": record.name,
        "state": "up" if record.alive else "dead",
        "pid": record.keeper.pid,
        "created_at": record.created_at,
        "links": [dataclasses.asdict(link) for link in record.links],
        "nodes": [dataclasses.asdict(node) for node in record.nodes],
    }


def _leftover_json(leftover: Leftover) -> dict[str, Any]:
    state = "in use" if leftover.owner else "left over"
    owner = leftover.owner.pid if leftover.owner else None
    return {"name": leftover.name, "state": state, "pid": leftover.keeper.pid, "owner_pid": owner}


def _fail(command: str, error: Exception) -> NoReturn:
    Console(stderr=True).print(f"rocelab fabric {command}: {error}", soft_wrap=True, markup=False, highlight=False)
    raise typer.Exit(1) from None
