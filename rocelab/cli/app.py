"""Puts the commands together."""

from __future__ import annotations

from typing import Annotated

import typer

from rocelab.cli import (
    accept,
    bars,
    compare,
    doctor,
    draws,
    fabric,
    hosts,
    man,
    report,
    run,
    studies,
    try_,
    validate,
    version,
)

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_show_locals=False,
    help="What would RDMA buy you? rocelab runs a study on this machine and writes a report.",
    epilog="Begin with: rocelab doctor, then: rocelab run quick",
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(version.text())
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the versions of rocelab, of urxe and of the format of results, and exit.",
        ),
    ] = False,
) -> None:
    pass


app.command()(run.run)
app.command("try")(try_.try_)
app.command()(accept.accept)
app.command()(draws.draws)
app.command()(report.report)
app.command()(compare.compare)
app.command()(bars.bars)
app.command()(validate.validate)
app.add_typer(studies.app, name="studies")
app.add_typer(fabric.app, name="fabric")
app.add_typer(hosts.app, name="hosts")
app.command()(doctor.doctor)
app.command(hidden=True)(man.man)
