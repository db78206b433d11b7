"""``dets cert``: a certificate authority for a lab."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps.cli.support.common import echo

app = typer.Typer(help="Certificates for a lab: a CA, the controller, its switches and clients.", no_args_is_help=True)

Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where certificates and keys are kept.")]
Days = Annotated[int, typer.Option(help="How long the certificate is valid.")]
Name = Annotated[str, typer.Argument(help="Its name, and that of its files: NAME.pem and NAME.key.")]
PKI = Path("pki")


@app.command()
def ca(
    folder: Folder = PKI,
    name: Annotated[str, typer.Option(help="The CA's name.")] = "DETS lab CA",
    days: Days = 3650,
) -> int:
    """Make a certificate authority: ca.pem to hand out, ca.key to keep."""
    from apps.cli.support.certificates import create_authority

    return _print_paths(create_authority(folder, name, days))


@app.command()
def server(
    name: Name,
    host: Annotated[
        list[str], typer.Option(metavar="HOST", help="A name or address under which it is reached; repeatable.")
    ],
    folder: Folder = PKI,
    days: Days = 825,
    client: Annotated[bool, typer.Option("--client", help="For a client too, as the members of an etcd need.")] = False,
) -> int:
    """Make a server's certificate, for openflow.certificate and rest.certificate."""
    from apps.cli.support.certificates import issue

    return _print_paths(issue(folder, name, days, host, client=client))


@app.command()
def client(name: Name, folder: Folder = PKI, days: Days = 825) -> int:
    """Make the certificate of a switch or of a client of REST."""
    from apps.cli.support.certificates import issue

    return _print_paths(issue(folder, name, days, None))


def _print_paths(paths: list[Path]) -> int:
    for path in paths:
        echo(path)
    return 0
