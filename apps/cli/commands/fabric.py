"""``dets switch`` and ``dets link``: the fabric itself."""

from __future__ import annotations

import typer

from apps.cli.support.command_options import with_client
from apps.cli.support.output import AnyForm, Column, OutputFormat, Row, location, number, rate, show
from apps.cli.support.rest_client import Client
from controller.units import format_rate

switches = typer.Typer(no_args_is_help=True, help="Switches: what they are for, and how they are.")
links = typer.Typer(no_args_is_help=True, help="Links between switches: what they carry, and what is promised of them.")


def _end(name: str) -> Column:
    return Column(name, lambda row: location(row[name]))


def _direction(title: str, direction: str, member: str) -> Column:
    """Return a column of the rate ``member`` of a link's direction, ``a_to_b`` or ``b_to_a``."""

    def cell(row: Row) -> str | None:
        rate_bps = row[direction][member]
        return None if rate_bps is None else format_rate(rate_bps)

    return Column(title, cell, right=True)


SWITCH_COLUMNS = (
    Column("switch", "switch"),
    Column("dpid", "dpid"),
    Column("role", "role"),
    Column("state", "state"),
    number("edge ports", "edge_ports"),
    number("VNs", "vns"),
    rate("capacity", "capacity_bps"),
    Column("faults", "faults"),
)
LINK_COLUMNS = (
    _end("a"),
    _end("b"),
    Column("up", "up"),
    rate("capacity", "capacity_bps"),
    _direction("committed a to b", "a_to_b", "committed_bps"),
    _direction("carried", "a_to_b", "load_bps"),
    _direction("committed b to a", "b_to_a", "committed_bps"),
    _direction("carried", "b_to_a", "load_bps"),
    Column("up since", "up_since"),
)


@switches.command("list")
@with_client
def list_switches(client: Client, output: AnyForm = OutputFormat.table) -> int:
    """List the switches of the configuration."""
    show(client.pages("/v1/switches", "switches"), output, SWITCH_COLUMNS)
    return 0


@links.command("list")
@with_client
def list_links(client: Client, output: AnyForm = OutputFormat.table) -> int:
    """List the links of the configuration and other discovered links, with their rates in the last second."""
    show(client.pages("/v1/links", "links"), output, LINK_COLUMNS)
    return 0
