"""``dets host``: the location of each address, and since when the address is there."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

import typer

from apps.cli.support.command_options import with_client
from apps.cli.support.name_resolver import PORT_HELP, NameResolver, OnlyVlan
from apps.cli.support.output import AnyForm, Column, OutputFormat, Row, location, number, show
from apps.cli.support.rest_client import Client
from controller.errors import InvalidValueError

hosts = typer.Typer(no_args_is_help=True, help="Hosts: where each address is, since when, and where it was before.")


def _place(end: Row | None) -> str | None:
    return None if end is None else location(end)


COLUMNS = (
    Column("MAC", "mac"),
    number("VLAN", "vlan_vid"),
    Column("port", _place),
    Column("since", "since"),
    Column("moved from", lambda row: _place(row["moved_from"])),
)


@hosts.command("list")
@with_client
def list_hosts(
    client: Client,
    vlan: OnlyVlan = None,
    switch: Annotated[str | None, typer.Option(metavar="NAME", help="Only those on this switch.")] = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help=f"{PORT_HELP}; only those there.")] = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """List the known hosts, by VLAN and address."""
    query: dict[str, Any] = {"vlan": vlan, "switch": switch}
    if port is not None:
        if switch is not None:
            raise InvalidValueError("switch", switch, "cannot be combined with --port, which names it")
        query["switch"], query["port"] = NameResolver(client).port("port", port)
    show(client.pages("/v1/hosts", "hosts", query), output, COLUMNS)
    return 0


@hosts.command("find")
@with_client
def find_host(
    client: Client,
    mac: Annotated[str, typer.Argument(metavar="MAC", help="Its address, with colons or dashes.")],
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show the location of an address in each VLAN in which it is known; exit status 2 if it is unknown."""
    show(client.pages(f"/v1/hosts/{quote(mac, safe='')}", "hosts"), output, COLUMNS)
    return 0
