"""``dets vlan``, ``vn``, ``limit``, ``port`` and ``pair``: lists, values, and changes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from apps.cli.support.command_options import CHANGED_MANY, Change, with_change, with_client
from apps.cli.support.common import LIMITS, Parameters, UsageError, counted, echo, parse_parameters
from apps.cli.support.name_resolver import PORT_HELP, NameResolver, OfVlan, OnlyVlan, VlanName
from apps.cli.support.output import AnyForm, Column, OutputFormat, location, number, rate, share, show
from apps.cli.support.rest_client import Client
from controller.units import format_rate, parse_rate, with_whole_numbers

vlans = typer.Typer(no_args_is_help=True, help="Tenants: their algorithms and what their VNs have by default.")
vns = typer.Typer(no_args_is_help=True, help="Virtual nodes, each one VLAN behind one edge port.")
limits = typer.Typer(no_args_is_help=True, help="What VNs may send and receive.")
ports = typer.Typer(no_args_is_help=True, help="Edge ports: what they carry, and what is promised of it.")
entries = typer.Typer(no_args_is_help=True, help="Pairs of VNs that talk, and what meters each of them.")

OfPort = Annotated[str, typer.Option("--port", metavar="PORT", help=f"{PORT_HELP}.")]
OfPorts = Annotated[list[str], typer.Option("--port", metavar="PORT", help=f"{PORT_HELP}; repeatable.")]
OnlySwitch = Annotated[str | None, typer.Option("--switch", metavar="NAME", help="Only those on this switch.")]
Send = Annotated[str | None, typer.Option(metavar="RATE", help="Send limit.")]
Receive = Annotated[str | None, typer.Option(metavar="RATE", help="Receive limit.")]
SendCeiling = Annotated[str | None, typer.Option(metavar="RATE", help="Up to which it may borrow; none: its limit.")]
ReceiveCeiling = Annotated[str | None, typer.Option(metavar="RATE", help="Up to which it may borrow; none: its limit.")]
Weight = Annotated[float | None, typer.Option(help="Weight by which it shares; not with every algorithm.")]

# Columns that policies report; most policies report none.
HELD_BACK = (
    share("marked", "marked_share"),
    share("lost", "lost_share"),
    Column("bottleneck", "bottleneck", optional=True),
)
VLAN_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("name", "name"),
    Column("algorithm", "algorithm"),
    Column("parameters", lambda row: [f"{name}={value:g}" for name, value in row["parameters"].items()]),
    number("weight", "weight"),
    number("VNs", "vns"),
    rate("send", "send_limit_bps"),
    rate("receive", "receive_limit_bps"),
    Column("shadow", "shadow"),
    number("revision", "revision"),
)
VN_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("port", location),
    rate("send", "send_limit_bps"),
    rate("receive", "receive_limit_bps"),
    rate("sends", "measured_send_bps"),
    rate("receives", "measured_receive_bps"),
    rate("granted", "granted_bps"),
    Column("congested", "congested"),
    number("revision", "revision"),
)
VN_DETAILS = (
    *VN_COLUMNS[:4],
    rate("send ceiling", "send_ceiling_bps"),
    rate("receive ceiling", "receive_ceiling_bps"),
    number("weight", "weight"),
    *VN_COLUMNS[4:6],
    rate("delivered", "delivered_bps"),
    rate("flood limit", "flood_limit_bps"),
    rate("floods", "flooded_bps"),
    rate("flood drops", "flood_dropped_bps"),
    rate("others' floods", "flood_received_bps"),
    *VN_COLUMNS[6:],
    *HELD_BACK,
    Column("hosts", "hosts"),
    Column("enforceable", "enforceable"),
    Column("why not", "enforceable_reasons"),
)
PORT_COLUMNS = (
    Column("port", location),
    Column("name", "name"),
    Column("state", lambda row: "fenced" if row["fence"] and row["state"] != "absent" else row["state"]),
    rate("capacity", "capacity_bps"),
    Column("VLANs", "vlan_vids"),
    rate("send limits", "send_limits_bps"),
    rate("receive limits", "receive_limits_bps"),
    rate("received", "received_bps"),
    rate("sent", "sent_bps"),
    Column("enforceable", "enforceable"),
)
PORT_DETAILS = (
    *PORT_COLUMNS,
    Column("why not", "enforceable_reasons"),
    Column("interface", "interface"),
    Column("since", "state_since"),
    rate("link", "speed_bps"),
    rate("limits may take", "admissible_bps"),
    Column("fence", "fence"),
    Column("agent", lambda row: None if row["agent"] is None else f"{row['agent']['state']} ({row['agent']['mode']})"),
    Column("agent heard, ms", lambda row: None if row["agent"] is None else row["agent"]["last_seen_ms"]),
)
ENTRY_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("from", lambda row: location(row["sender"])),
    Column("to", lambda row: location(row["receiver"])),
    rate("offered", "offered_bps"),
    rate("dropped", "dropped_bps"),
    rate("granted", "granted_bps"),
    rate("limit", "limit_bps"),
    rate("meter", "meter_rate_bps"),
    Column("shaped by", "shaping"),
    *HELD_BACK,
    Column("control", "control"),
)


UNMETERED_COLUMNS = (*ENTRY_COLUMNS[:3], Column("why", "why"))


@vlans.command("list")
@with_client
def list_vlans(client: Client, output: AnyForm = OutputFormat.table) -> int:
    """List the VLANs."""
    show(client.pages("/v1/vlans", "vlans"), output, VLAN_COLUMNS)
    return 0


@vlans.command("show")
@with_client
def show_vlan(client: Client, vlan: VlanName, output: AnyForm = OutputFormat.table) -> int:
    """Show a VLAN."""
    show(client.call(f"/v1/vlans/{vlan}"), output, VLAN_COLUMNS)
    return 0


@vlans.command("set")
@with_change
def set_vlan(
    change: Change,
    vlan: VlanName,
    name: Annotated[str | None, typer.Option(help="What people call it.")] = None,
    algorithm: Annotated[str | None, typer.Option(metavar="NAME", help="How receivers' limits are shared out.")] = None,
    parameter: Parameters = None,
    shadow: Annotated[
        str | None, typer.Option(metavar="NAME", help="Computed and not enforced; none removes it.")
    ] = None,
    shadow_parameter: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter of the shadow; repeatable.")
    ] = None,
    weight: Annotated[float | None, typer.Option(help="Weight of VNs without their own.")] = None,
    send: Annotated[str | None, typer.Option(metavar="RATE", help="Send limit of VNs without their own.")] = None,
    receive: Annotated[str | None, typer.Option(metavar="RATE", help="Receive limit of VNs without their own.")] = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Change values of a VLAN; values that are not given stay."""
    body: dict[str, Any] = {"name": name, "algorithm": algorithm, "weight": weight}
    body |= {
        f"{direction}_limit_bps": _rate(direction, text) for direction, text in (("send", send), ("receive", receive))
    }
    body = {key: value for key, value in body.items() if value is not None}
    if parameter:
        body["parameters"] = parse_parameters(parameter)
    if shadow_parameter:
        body["shadow_parameters"] = parse_parameters(shadow_parameter)
    if shadow is not None:
        body["shadow"] = None if shadow == "none" else shadow
    _check_some(body, "--name, --algorithm, --parameter, --shadow, --shadow-parameter, --weight, --send or --receive")
    answer = change.make("PATCH", f"/v1/vlans/{vlan}", body)
    _print_one(change, answer, output, f"VLAN {vlan}: {_shown(body)}", VLAN_COLUMNS)
    return 0


@vlans.command("reset")
@with_change
def reset_vlan(change: Change, vlan: VlanName, output: AnyForm = OutputFormat.table) -> int:
    """Remove the overrides of a VLAN: the configuration file's values are effective again."""
    print_changed(change, change.make("DELETE", f"/v1/vlans/{vlan}/overrides", shape=CHANGED_MANY), output)
    return 0


@vns.command("list")
@with_client
def list_vns(
    client: Client, vlan: OnlyVlan = None, switch: OnlySwitch = None, output: AnyForm = OutputFormat.table
) -> int:
    """List VNs with their limits and their state."""
    show(client.pages("/v1/vns", "vns", {"vlan": vlan, "switch": switch}), output, VN_COLUMNS)
    return 0


@vns.command("show")
@with_client
def show_vn(client: Client, vlan: OfVlan, port: OfPort, output: AnyForm = OutputFormat.table) -> int:
    """Show a VN."""
    show(client.call(NameResolver(client).vn_path(vlan, port)), output, VN_DETAILS)
    return 0


@limits.command("set")
@with_change
def set_limits(
    change: Change,
    vlan: OfVlan,
    port: OfPorts,
    send: Send = None,
    receive: Receive = None,
    send_ceiling: SendCeiling = None,
    receive_ceiling: ReceiveCeiling = None,
    weight: Weight = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Set limits and weight of a VN, or of those at several ports at once: all, or none. A RATE is such as 400M."""
    options = zip((*LIMITS, "weight"), (send, receive, send_ceiling, receive_ceiling, weight), strict=True)
    body = _limits({name: value for name, value in options if value is not None})
    _check_some(body, "--send, --receive, --send-ceiling, --receive-ceiling or --weight")
    names = NameResolver(change.client)
    if len(port) == 1:
        answer = change.make("PATCH", names.vn_path(vlan, port[0]), body)
        _print_one(change, answer, output, f"VLAN {vlan}, {port[0]}: {_shown(body)}", VN_DETAILS)
        return 0
    rows = [names.vn(vlan, location) | body for location in port]
    print_changed(change, change.make("POST", "/v1/limits", {"limits": rows}, shape=CHANGED_MANY), output)
    return 0


@limits.command("apply")
@with_change
def apply_limits(
    change: Change,
    file: Annotated[Path, typer.Argument(help="A list of {vlan, port, send, receive, weight, ...}, as YAML or JSON.")],
    output: AnyForm = OutputFormat.table,
) -> int:
    """Set limits and weights of many VNs at once: all of them, or none."""
    from apps.cli.support.limits_file import read_limits

    file_rows = read_limits(file)
    names = NameResolver(change.client)
    rows = [names.vn(str(row["vlan"]), row["port"]) | _limits(row) for row in file_rows]
    print_changed(change, change.make("POST", "/v1/limits", {"limits": rows}, shape=CHANGED_MANY), output)
    return 0


@limits.command("reset")
@with_change
def reset_limits(
    change: Change,
    vlan: OnlyVlan = None,
    port: Annotated[str | None, typer.Option(metavar="PORT", help=f"{PORT_HELP}.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All that was changed while the controller ran, of VLANs too.")
    ] = False,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Remove overrides of limits and weights: the configuration file's values are effective again."""
    if everything and vlan is None and port is None:
        answer = change.make("DELETE", "/v1/overrides", if_match="*", shape=CHANGED_MANY)
    elif not everything and vlan is not None and port is not None:
        answer = change.make(
            "DELETE", f"{NameResolver(change.client).vn_path(vlan, port)}/overrides", shape=CHANGED_MANY
        )
    else:
        raise UsageError("Write --vlan VLAN --port PORT, or --all")
    print_changed(change, answer, output)
    return 0


@ports.command("list")
@with_client
def list_ports(client: Client, switch: OnlySwitch = None, output: AnyForm = OutputFormat.table) -> int:
    """List the edge ports."""
    show(client.pages("/v1/ports", "ports", {"switch": switch}), output, PORT_COLUMNS)
    return 0


@ports.command("show")
@with_client
def show_port(
    client: Client,
    port: Annotated[str, typer.Argument(metavar="PORT", help=f"{PORT_HELP}.")],
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show an edge port."""
    show(client.call(f"/v1/ports/{'/'.join(NameResolver(client).port_path_parts('PORT', port))}"), output, PORT_DETAILS)
    return 0


@entries.command("list")
@with_client
def list_entries(
    client: Client, vlan: OnlyVlan = None, switch: OnlySwitch = None, output: AnyForm = OutputFormat.table
) -> int:
    """List the active pairs of VNs; --switch is the sender's."""
    show(client.pages("/v1/pairs", "pairs", {"vlan": vlan, "switch": switch}), output, ENTRY_COLUMNS)
    return 0


@entries.command("unmetered")
@with_client
def list_unmetered(
    client: Client, vlan: OnlyVlan = None, switch: OnlySwitch = None, output: AnyForm = OutputFormat.table
) -> int:
    """List the active pairs without a meter, and why; --switch is the sender's."""
    query = {"vlan": vlan, "switch": switch, "limit": 1}  # every page lists all unmetered pairs
    pairs = client.call("/v1/pairs", query=query, shape={"unmetered_pairs": [dict]})["unmetered_pairs"]
    show(pairs, output, UNMETERED_COLUMNS)
    return 0


def _rate(key: str, text: str | int | None) -> int | None:
    return None if text is None else parse_rate(text, key)


def _limits(options: dict[str, Any]) -> dict[str, float | None]:
    """Return the body of a request from limits and ceilings, as typed, and a weight; a ceiling may be ``none``."""
    body: dict[str, float | None] = {"weight": options["weight"]} if "weight" in options else {}
    for name in LIMITS:
        if name in options:
            is_ceiling = name.endswith("_ceiling")
            key = f"{name}_bps" if is_ceiling else f"{name}_limit_bps"
            body[key] = None if is_ceiling and options[name] == "none" else _rate(name, options[name])
    return body


def _check_some(body: dict[str, Any], options: str) -> None:
    """Raise UsageError, naming the possible options, for a request that sets nothing."""
    if not body:
        raise UsageError(f"Nothing to set: write {options}")


def _shown(body: dict[str, Any]) -> str:
    """Return the values of a request as text, such as ``send 400 Mbit/s, weight 2``."""
    return ", ".join(_shown_value(key, value) for key, value in body.items())


def _shown_value(key: str, value: Any) -> str:
    name, value = key.removesuffix("_bps").removesuffix("_limit").replace("_", " "), with_whole_numbers(value)
    if isinstance(value, dict):
        value = " ".join(f"{parameter}={number}" for parameter, number in value.items())
    return f"{name} {'none' if value is None else format_rate(value) if key.endswith('_bps') else value}"


def _print_one(change: Change, answer: Any, form: OutputFormat, sentence: str, columns: Any) -> None:
    """Print the result of changing one VLAN or VN: a sentence, or the whole response."""
    if form is OutputFormat.table:
        echo(f"{sentence} ({change.outcome(answer['revision'])})")
    else:
        show(answer, form, columns)


def print_changed(change: Change, answer: Any, form: OutputFormat) -> None:
    """Print the result of changing many values: their number, or the whole response."""
    if form is OutputFormat.table:
        echo(f"{counted(answer['changed'], 'value')} changed ({change.outcome(answer['revision'])})")
    else:
        show(answer, form, ())
