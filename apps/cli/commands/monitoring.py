"""``dets status``, ``top``, ``events`` and ``explain``: the state of a running controller, with explanations."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import typer

from apps.cli.commands.limits import HELD_BACK
from apps.cli.support.answers import Shape, check
from apps.cli.support.command_options import DEFAULT_WAIT_S, check_timeout, with_client
from apps.cli.support.common import FAILED, counted, echo, print_error
from apps.cli.support.name_resolver import PORT_HELP, OfVlan, OnlyVlan, explanations
from apps.cli.support.output import (
    AnyForm,
    Column,
    OutputFormat,
    console,
    fit_table,
    json_text,
    location,
    narrowed,
    number,
    rate,
    show,
    text_of,
)
from apps.cli.support.rest_client import AnswerError, Client, RequestError
from controller.errors import InvalidValueError

app = typer.Typer()

_TEXT = (str, type(None))
POLL_INTERVAL_S, FAST_POLL_INTERVAL_S = 1.0, 0.2
LIVE_COLUMNS = (
    rate("offered", "offered_receive_bps"),
    rate("received", "measured_receive_bps"),
    rate("dropped", "dropped_receive_bps"),
    rate("granted", "granted_bps"),
)
SEND_LIMIT_DROPS = rate("send limit drops", "send_limit_dropped_bps")
VLAN_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("name", "name"),
    Column("algorithm", "algorithm"),
    number("VNs", "vns"),
    number("congested", "congested_vns"),
    *LIVE_COLUMNS,
    SEND_LIMIT_DROPS,
    *HELD_BACK,
)
VN_COLUMNS = (
    number("VLAN", "vlan_vid"),
    Column("port", location),
    rate("send limit", "send_limit_bps"),
    rate("sent", "measured_send_bps"),
    SEND_LIMIT_DROPS,
    rate("floods", "flooded_bps"),
    rate("flood drops", "flood_dropped_bps"),
    rate("receive limit", "receive_limit_bps"),
    *LIVE_COLUMNS,
    *HELD_BACK,
    rate("queue drops", "queue_dropped_bps"),
    number("notifications", "notifications"),
    Column("congested", "congested"),
)
ASCENDING_COLUMNS = (
    *("notifications", "queue drops", "floods", "flood drops", "send limit drops", "lost", "marked", "bottleneck"),
    *("sent", "send limit", "algorithm", "receive limit"),
)
"""What dets top leaves out, in this order, until its table fits a terminal."""
HEALTH: Shape = {
    "status": str,
    "switches": {...: str},
    "faults?": {...: [str]},
    "cluster?": {"node": str, "role": str, "active": _TEXT, "active_url": _TEXT, "owners?": {...: _TEXT}},
}
_KEYS = ("vlan_vid", "switch", "port_no")
_RATES = {
    "received": "measured_receive_bps",
    "sent": "measured_send_bps",
    "offered": "offered_receive_bps",
    "send_offered": "offered_send_bps",
    "dropped": "dropped_receive_bps",
    "send_dropped": "dropped_send_bps",
    "send_limit_dropped": "send_limit_dropped_bps",
    "granted": "granted_bps",
    "flooded": "flooded_bps",
    "flood_dropped": "flood_dropped_bps",
}
"""Names of the stream's columns in rows, as in /v1/vlans and /v1/vns."""
_STATE: Shape = {"revision": int, "rows": [[(int, type(None))]], "congested": [int], "bottlenecks?": [_TEXT]}
EVENTS: Shape = {"last": int, "events": [{"at": str, "kind": str, "text": str}]}
EVENT_COLUMNS = (number("number", "number"), Column("at", "at"), Column("kind", "kind"), Column("what", "text"))


@app.command()
@with_client
def explain(
    client: Client,
    vlan: OfVlan,
    sender: Annotated[str, typer.Option("--from", metavar="PORT", help=f"{PORT_HELP}, of the sender.")],
    receiver: Annotated[
        str | None,
        typer.Option("--to", metavar="PORT", help="That of the receiver; without it, all pairs of --from."),
    ] = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show what binds the limit of a pair of VNs in a running controller, and what would bind it next."""
    pairs = explanations(client, vlan, sender, receiver)
    if output is OutputFormat.table:
        for pair in pairs:
            echo(pair["sentence"])
    else:
        show(pairs if receiver is None else pairs[0], output, ())
    return 0


@app.command()
@with_client
def status(
    client: Client,
    wait: Annotated[bool, typer.Option("--wait", help="Return when all is well.")] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long --wait waits; then exit status 1.")
    ] = DEFAULT_WAIT_S,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show whether the controller works and which switches are ready; exit status 1 if there is a fault."""
    check_timeout(timeout)
    health = _health(client, timeout if wait else 0.0)
    if output is not OutputFormat.table:
        show(health, output, ())
    else:
        faults = health.get("faults", {})
        rows = [
            {"switch": name, "state": state, "faults": faults.get(name, [])}
            for name, state in health["switches"].items()
        ]
        columns = ["switch", "state", "faults"]
        echo(health["status"])
        if cluster := health.get("cluster"):
            echo(f"node {cluster['node']}: {cluster['role']}; active is {cluster['active']} at {cluster['active_url']}")
            if cluster.get("owners"):
                columns.insert(1, "node")
                switches = client.pages("/v1/switches", "switches")  # with states from their nodes
                rows = [{**row, "node": _owner(cluster["owners"], row)} for row in switches]
        show(rows, output, [Column(name, name) for name in columns])
        if full := health.get("full_vns"):
            echo(f"{counted(full, 'VN')} with as many hosts as they may learn: dets vn list -o json has hosts_full")
    return 0 if health["status"] == "ready" else FAILED


def _health(client: Client, wait_s: float) -> dict[str, Any]:
    """Return the health as soon as its status is ready, or after ``wait_s`` whatever the status is.

    While the controller is unreachable, it is asked again, too; the last request raises RequestError.
    """
    end_s = time.monotonic() + wait_s
    while True:
        is_last = time.monotonic() >= end_s
        try:
            health: dict[str, Any] = client.call("/v1/health", shape=HEALTH)
            if is_last or health["status"] == "ready":
                return health
        except RequestError as error:
            if is_last or error.status is not None or isinstance(error, AnswerError):
                raise
        time.sleep(FAST_POLL_INTERVAL_S)


@app.command()
@with_client
def top(
    client: Client,
    vlan: OnlyVlan = None,
    switch: Annotated[str | None, typer.Option(metavar="NAME", help="The VNs on this switch.")] = None,
    interval: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look, 0.25 to 60.")] = 1.0,
    count: Annotated[int | None, typer.Option(min=1, help="Look so many times; else until Ctrl-C.")] = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show the rates of VLANs or VNs, the busiest first: in a terminal one table, otherwise one per interval."""
    if not 0.25 <= interval <= 60.0:
        raise InvalidValueError("interval", interval, "is outside 0.25 to 60 seconds")
    of_vlans = vlan is None and switch is None
    selection = {"vlan": vlan, "switch": switch}
    states = _states(client, "vlans" if of_vlans else "vns", selection, interval, count)
    with _screen(output, VLAN_COLUMNS if of_vlans else VN_COLUMNS) as show_rows:
        shown = 0
        for rows in states:
            show_rows(rows)
            shown += 1
    if shown != count:
        raise RequestError("the controller has ended the stream")
    return 0


@app.command()
@with_client
def events(
    client: Client,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what happens, until Ctrl-C.")] = False,
    after: Annotated[int, typer.Option(metavar="NUMBER", min=0, help="Only those with a higher number.")] = 0,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show events: changed limits, the begin and end of congestion, switches that connect and disconnect."""
    answer = client.call("/v1/events", query={"after": after}, shape=EVENTS)
    if not follow:
        show(answer["events"], output, EVENT_COLUMNS)
        return 0
    for batch in _following(client, answer):
        for event in batch:
            if output is OutputFormat.json:
                echo(json_text(event))
            elif output is OutputFormat.yaml:
                print(text_of([event], output))
            else:
                echo(f"{event['at']}  {event['kind']}: {event['text']}")
        sys.stdout.flush()
    return 0


def _states(
    client: Client, name: str, selection: dict[str, Any], interval_s: float, count: int | None
) -> Iterator[list[dict[str, Any]]]:
    """Yield ``count`` times (None: for ever) the rows of ``vlans`` or ``vns``, the highest received rate first.

    A row has the live state from the stream, and the settings, which are read again when they have changed.
    """
    query = {**selection, "interval_ms": round(interval_s * 1000), "count": count}
    revision, settings_of = None, {}
    keys: dict[str, Any] = {"columns": [], name: []}
    for event in client.stream("/v1/stream", query, timeout_s=interval_s + 30.0):
        if event.name == "keys":
            check(event.data, {"columns": [str], name: [[(int, str)]]}, "the stream")
            keys = event.data
        if event.name != "state":
            continue
        check(event.data, _STATE, "the stream")
        if event.data["revision"] != revision:
            revision = event.data["revision"]
            settings_of = {_key(row): row for row in client.pages(f"/v1/{name}", name, selection)}
        try:
            live = list(_live_rows(keys["columns"], keys[name], event.data, of_vns=name == "vns"))
        except ValueError:
            continue  # its configuration differs from the keys', and new keys follow
        rows = [{**settings_of.get(_key(row), {}), **row} for row in live]
        yield sorted(rows, key=lambda row: row.get("measured_receive_bps") or 0, reverse=True)


def _live_rows(
    columns: list[str], keys: list[list[Any]], state: dict[str, Any], *, of_vns: bool
) -> Iterator[dict[str, Any]]:
    """Yield an object for each row of a state whose ``rows`` are columns.

    ``columns`` are their names, ``keys`` the VLANs or VNs of the rows. Raises ValueError if the lengths differ.
    """
    rates_kbps = [dict(zip(columns, row, strict=True)) for row in zip(*state["rows"], strict=True)]
    if of_vns:  # ``congested`` has the indices of congested VNs
        congested, bottlenecks = set(state["congested"]), state.get("bottlenecks") or [None] * len(keys)
        conditions: list[dict[str, Any]] = [
            {"congested": index in congested, "bottleneck": bottleneck} for index, bottleneck in enumerate(bottlenecks)
        ]
    else:  # ``congested`` has the number of congested VNs of each VLAN
        conditions = [{"congested_vns": count} for count in state["congested"]]
    names = _KEYS if of_vns else ("vlan_vid", "name")
    for key, kbps, condition in zip(keys, rates_kbps, conditions, strict=True):
        rates = {_RATES[name]: _bits(value) for name, value in kbps.items() if name in _RATES}
        shares = {f"{name}_share": _share(kbps.get(name), kbps.get("received")) for name in ("marked", "lost")}
        yield dict(zip(names, key, strict=True)) | rates | shares | condition


def _bits(kbps: int | None) -> int | None:
    return None if kbps is None else 1000 * kbps


def _share(part: int | None, whole: int | None) -> float | None:
    return None if part is None or not whole else round(min(part / whole, 1.0), 4)


def _key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row.get(key)) for key in _KEYS)


def _owner(owners: dict[str, Any], row: dict[str, Any]) -> Any:
    check(row, {"switch": str}, "a switch")
    return owners.get(row["switch"])


@contextlib.contextmanager
def _screen(form: OutputFormat, columns: Sequence[Column]) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
    """Yield a function that shows rows. In a terminal a table replaces the one before, cut to the terminal's size."""
    terminal = console()
    if form is not OutputFormat.table or not terminal.is_terminal:
        yield lambda rows: show(rows, form, columns)
        return
    from rich.live import Live

    with Live(console=terminal, screen=True, auto_refresh=False) as live:

        def show_rows(rows: list[dict[str, Any]]) -> None:
            rows = rows[: terminal.height]
            fitting = narrowed(rows, columns, terminal, ASCENDING_COLUMNS)
            live.update(fit_table(rows, fitting, terminal, terminal.height), refresh=True)

        yield show_rows


def _following(client: Client, answer: Any) -> Iterator[list[dict[str, Any]]]:
    """Yield the events of a response, and for ever the events after it, across restarts of the controller."""
    is_unreachable = False
    while True:
        yield answer["events"]
        last = answer["last"]
        time.sleep(POLL_INTERVAL_S)
        try:
            answer = client.call("/v1/events", query={"after": last}, shape=EVENTS)
            if answer["last"] < last:  # the controller has restarted, and counts from one again
                answer = client.call("/v1/events", shape=EVENTS)
            is_unreachable = False
        except RequestError as error:
            if error.status is not None or isinstance(error, AnswerError):
                raise
            if not is_unreachable:
                print_error(f"{error}; waiting for it")
            is_unreachable, answer = True, {"events": [], "last": last}
