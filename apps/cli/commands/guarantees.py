"""``dets guarantees``: the commitments of ports and links, and how long each guarantee was met and violated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import typer

from apps.cli.commands.fabric import LINK_COLUMNS
from apps.cli.support.command_options import with_client
from apps.cli.support.common import echo
from apps.cli.support.name_resolver import OnlyVlan
from apps.cli.support.output import AnyForm, Column, OutputFormat, Row, location, number, rate, show
from apps.cli.support.rest_client import Client
from controller.units import format_rate

app = typer.Typer()

VIOLATED_BY = ("switch", "controller", "floods", "grants")


def _free(title: str, committed: str) -> Column:
    """Return a column of the rate that limits may still take; ``committed`` is the member with the sum of limits."""
    return Column(title, lambda row: format_rate(row["admissible_bps"] - row[committed]), right=True)


def _seconds(title: str, *names: str) -> Column:
    """Return a column of seconds: the member of a VN's guarantee under the path ``names``."""

    def seconds(row: Row) -> str:
        value: Any = row["guarantee"]
        for name in names:
            value = value[name]
        return f"{value:.1f}"

    return Column(title, seconds, right=True)


def _guaranteed(title: str, name: str) -> Column:
    """Return a column of the rate ``name`` of a VN's guarantee."""
    return Column(title, lambda row: format_rate(row["guarantee"][name]), right=True)


PORT_COLUMNS = (
    Column("port", location),
    rate("capacity", "capacity_bps"),
    rate("send limits", "send_limits_bps"),
    rate("receive limits", "receive_limits_bps"),
    _free("free to send", "send_limits_bps"),
    _free("free to receive", "receive_limits_bps"),
)
VN_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("port", location),
    _guaranteed("is entitled to", "entitled_bps"),
    _guaranteed("gets", "received_bps"),
    Column("violated since", lambda row: row["guarantee"]["violated_since"]),
    _seconds("no demand, s", "idle_s"),
    _seconds("met, s", "met_s"),
    _seconds("violated, s", "violated_s"),
    _seconds("in the last hour", "violated_last_hour_s"),
    *(_seconds(f"by {name}", "violated_by_s", name) for name in VIOLATED_BY),
)


@app.command()
@with_client
def guarantees(client: Client, vlan: OnlyVlan = None, output: AnyForm = OutputFormat.table) -> int:
    """Show the commitments of ports and links and the violated guarantees; with --vlan, the guarantees of its VNs."""
    if vlan is not None:
        show(client.pages("/v1/vns", "vns", {"vlan": vlan}), output, VN_COLUMNS)
        return 0
    report: Mapping[str, Any] = {
        "ports": client.pages("/v1/ports", "ports"),
        "links": client.pages("/v1/links", "links"),
        "violated": client.pages("/v1/vns", "vns", {"violated": "true"}),
    }
    if output is not OutputFormat.table:
        show(report, output, ())
        return 0
    show(report["ports"], output, PORT_COLUMNS)
    for name, columns in (("links", LINK_COLUMNS), ("violated", VN_COLUMNS)):
        if report[name]:
            echo()
            show(report[name], output, columns)
    if not report["violated"]:
        echo()
        echo("Every VN gets what its senders offer within its limit.")
    return 0
