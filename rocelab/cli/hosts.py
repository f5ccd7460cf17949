"""``rocelab hosts``: looks at machines of one's own before a study runs on them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rocelab.cli.problems import fail
from rocelab.fabric.base import FabricError
from rocelab.stats import text

if TYPE_CHECKING:
    from rocelab.hosts.check import Finding
    from rocelab.hosts.fabric import HostsFabric
    from rocelab.hosts.rails import Facts, Rail

EXIT_WRONG: Final = 3
#: Programs that studies measure with, and what to do where a host has none.
_PROGRAMS: Final = {
    "ib_send_lat": "package perftest",
    "ib_send_bw": "package perftest",
    "iperf3": "package iperf3",
    "qperf": "package qperf",
    "mpiexec": "package openmpi-bin or mpich",
    "srun": "package slurm-client",
    "urxe": "rocelab's own: `rocelab run --stage` copies it",
    "rocelab-sock": "rocelab's own: `rocelab run --stage` copies it",
}
#: Those that can be copied.
_OWN: Final = ("urxe", "rocelab-sock")
#: Without these a host can still be measured.
_OPTIONAL: Final = frozenset({"qperf", "mpiexec", "srun", *_OWN})

app = typer.Typer(no_args_is_help=True, help="Machines of your own as a fabric: what is there, and what is wrong.")

HostsArgument = Annotated[
    str | None,
    typer.Argument(
        help="A list such as node[01-16], or a file (docs/hosts.md). Else ./hosts.toml, or a Slurm or PBS allocation."
    ),
]
WithoutOption = Annotated[str | None, typer.Option("--without", help="Hosts to leave out, as a list.", metavar="HOSTS")]


@app.callback()
def _group() -> None:
    pass


@app.command()
def check(
    hosts: HostsArgument = None,
    without: WithoutOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything that was found, as JSON.")] = False,
) -> None:
    """Say what hosts are, how they are joined, what is wrong, and what differs between them.

    The exit status is 0 if nothing is wrong, 3 if something is, and 1 if a host cannot be used.
    """
    from rocelab.hosts import check as checks  # noqa: PLC0415, ClusterShell need not load for other commands
    from rocelab.hosts import reach  # noqa: PLC0415
    from rocelab.hosts.launcher import HostsLauncher  # noqa: PLC0415

    try:
        with opened(hosts, without, "looking at the hosts") as fabric:
            clocks = {name: session.clock for name, session in fabric.sessions.items()}
            found = [*checks.findings(fabric.facts, [*fabric.rails.values()], clocks)]
            found = [*reach.findings(fabric, HostsLauncher(fabric)), *found]
    except FabricError as error:
        fail("hosts check", error)
    if as_json:
        print(json.dumps(_as_json(fabric, found), indent=2))  # noqa: T201
    else:
        _show(fabric, found)
    raise typer.Exit(EXIT_WRONG if any(each.kind == "wrong" for each in found) else 0)


@contextlib.contextmanager
def opened(hosts: str | None, without: str | None, doing: str) -> Iterator[HostsFabric]:
    """The hosts that a person means, until the end of the block. Raises FabricError."""
    from rocelab.hosts import fabric, inventory  # noqa: PLC0415, as above

    chosen = inventory.find(hosts)
    left_out = inventory.names(without) if without else ()
    with contextlib.ExitStack() as stack:
        with Console(stderr=True).status(f"{doing}: {len(chosen.names)} by {chosen.launcher}"):
            made = stack.enter_context(fabric.up(chosen, programs=_places(chosen.table.programs), without=left_out))
        yield made


def _places(named: Mapping[str, str]) -> list[str]:
    """What to look for on hosts: a program where hosts.toml names its place, else by its name.

    Rocelab's own are looked for at their place on this machine, too: hosts may share its file system.
    """
    from rocelab.tools import sock  # noqa: PLC0415, as above
    from rocelab.tools.interconnects import urxe  # noqa: PLC0415

    own = [each.name for each in (urxe(), sock.program()) if Path(each.name).name not in named]
    return [*(named.get(program, program) for program in _PROGRAMS), *own]


def _as_json(fabric: HostsFabric, found: Sequence[Finding]) -> dict[str, Any]:
    return {
        "hosts": fabric.facts,
        "rails": {
            rail.id: {host: dataclasses.asdict(end) for host, end in rail.ends.items()}
            for rail in fabric.rails.values()
        },
        "findings": [dataclasses.asdict(each) for each in found],
    }


def _show(fabric: HostsFabric, found: Sequence[Finding]) -> None:
    from rocelab.hosts.inventory import folded  # noqa: PLC0415, as above

    console = Console()
    groups: dict[str, list[str]] = {}
    for name, facts in fabric.facts.items():
        groups.setdefault(_summary(facts), []).append(name)
    _title(console, f"{len(fabric.nodes)} hosts, from {fabric.inventory.source}, by {fabric.inventory.launcher}")
    for summary, names in groups.items():
        _item(console, f"{folded(names)}: ", summary)
    _title(console, "Rails")
    for rail in fabric.rails.values():
        _item(console, f"{rail.id}: ", _rail_words(rail))
    _show_programs(console, fabric.facts)
    for kind, title, style in (("wrong", "Wrong", "red"), ("differs", "Different between hosts", "yellow")):
        of_kind = [each for each in found if each.kind == kind]
        if of_kind:
            _title(console, title)
        for each in of_kind:
            _item(console, f"{folded(each.hosts)}: ", each.text, style)
            if each.advice:
                console.print(Padding(Text(f"-> {each.advice}."), (0, 0, 0, 4)))
    if not found:
        console.print("\n[green]Nothing is wrong, and the hosts are alike.[/]")
    lacking = [name for name in _OWN if any(_found(said, name) is None for said in fabric.facts.values())]
    stage = "--stage " if lacking else ""
    console.print(f"\nRun a study on them with: rocelab run --fabric hosts {stage}quick", highlight=False)


def _item(console: Console, name: str, words: str, style: str = "") -> None:
    """One thing with what is said of it, all lines of it indented."""
    console.print(Padding(Text.assemble((name, "bold"), (words, style)), (0, 0, 0, 2)))


def _title(console: Console, words: str) -> None:
    console.print(f"\n[bold underline]{words}[/]", highlight=False)


def _summary(facts: Facts) -> str:
    system = facts["system"]
    cores = text.plural(system["cores"], "core")
    parts = [
        system.get("distribution", "unknown system"),
        f"Linux {system['kernel']}",
        system.get("cpu_model", system["machine"]),
        cores,
        f"{system['memory_gib']:g} GiB",
    ]
    devices = [f"{name} ({_device_words(device)})" for name, device in facts["devices"].items()]
    return ", ".join([*parts, *(devices or ["no RDMA device"])])


def _device_words(device: Facts) -> str:
    ports: Mapping[str, Facts] = device["ports"]
    rates = dict.fromkeys(port["rate"] for port in ports.values() if "rate" in port)
    return ", ".join(part for part in (device.get("model"), device.get("firmware"), *rates) if part)


def _rail_words(rail: Rail) -> str:
    end = next(iter(rail.ends.values()))
    names = dict.fromkeys(each.interface for each in rail.ends.values())
    over = ["ipoib" if end.is_ipoib else "tcp, soft-roce and soft-iwarp"] if rail.has_addresses else []
    if rail.verbs is not None:
        over.append(f"{rail.verbs} on {', '.join(dict.fromkeys(_device_names(rail)))}")
    parts = [
        "/".join(name for name in names if name) or "no addresses",
        f"{end.address}/{end.prefix_bits} and so on" if rail.has_addresses else "",
        text.quantity(rail.rate_mbps, "Mbps") if rail.rate_mbps else "rate not known",
        f"MTU {rail.mtu_bytes}" if rail.mtu_bytes else "",
        f"for {' and '.join(over)}",
    ]
    return ", ".join(part for part in parts if part)


def _device_names(rail: Rail) -> Iterator[str]:
    for end in rail.ends.values():
        if end.device is not None:
            yield end.device.device


def _show_programs(console: Console, facts: Mapping[str, Facts]) -> None:
    from rocelab.hosts.inventory import folded  # noqa: PLC0415, as above

    _title(console, "Programs")
    table = Table(box=None, pad_edge=False, show_header=False)
    for program, remedy in _PROGRAMS.items():
        found = {name: _found(said, program) for name, said in facts.items()}
        lacking = [name for name, each in found.items() if each is None]
        if not lacking:
            versions = dict.fromkeys(str(each.get("version", "there")) for each in found.values() if each is not None)
            table.add_row(f"  {program}", Text("ok", style="green"), Text(" / ".join(versions)))
        else:
            where = "" if len(lacking) == len(facts) else f" on {folded(lacking)}"
            style = "dim" if program in _OPTIONAL else "red"
            table.add_row(f"  {program}", Text(f"missing{where}", style=style), Text(remedy, style="dim"))
    console.print(table)


def _found(facts: Facts, program: str) -> Facts | None:
    """What a host says of a program, by its name or by its place on this machine."""
    found: Mapping[str, Facts] = facts["programs"]
    return next((found[place] for place in found if Path(place).name == program), None)
