"""``dets history``, ``overrides``, ``export``, ``import``, ``token``: overrides, and who may set them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.cli.commands.limits import print_changed
from apps.cli.support.command_options import CHANGED_MANY, Change, with_change, with_client
from apps.cli.support.common import UsageError, counted, echo
from apps.cli.support.output import AnyForm, Column, OutputFormat, Row, json_text, location, number, show
from apps.cli.support.rest_client import Client
from controller import rooms
from controller.errors import InvalidValueError
from controller.units import format_rate

if TYPE_CHECKING:
    from apps.settings.tokens import Tokens

app = typer.Typer()
tokens = typer.Typer(
    no_args_is_help=True, help="Tokens of the REST interface; on the controller's machine, running or not."
)

OfConfig = Annotated[
    Path, typer.Option("--config", "-c", metavar="FILE", envvar="DETS_CONFIG", help="The configuration, for its store.")
]
OfStore = Annotated[Path | None, typer.Option("--store", metavar="FILE", help="The store itself.")]
CONFIG = Path("dets.yaml")


def _shown(name: str, value: Any) -> str:
    return format_rate(value) if name.endswith("_bps") and value is not None else json.dumps(value)


def _of(row: Row) -> str:
    return f"VLAN {row['vlan_vid']}" + (f", {location(row)}" if row["switch"] else "")


OVERRIDE_COLUMNS = (
    Column("of", _of),
    Column("set", lambda row: [f"{name} {_shown(name, value)}" for name, value in row["values"].items()]),
    Column("in the file", lambda row: [f"{name} {_shown(name, value)}" for name, value in row["file"].items()]),
    number("revision", "revision"),
    Column("in force", lambda row: "yes" if row["active"] else f"no: {row['reason']}"),
)
CHANGE_COLUMNS = (
    number("revision", "revision"),
    *(Column(name, name) for name in ("at", "who", "address", "action")),
    number("changed", "changed"),
)
ITEM_COLUMNS = (
    Column("of", _of),
    Column("what", "field"),
    Column("before", lambda row: _shown(row["field"], row["before"])),
    Column("after", lambda row: _shown(row["field"], row["after"])),
)
TOKEN_COLUMNS = tuple(
    Column(title, name) for title, name in (("name", "name"), ("scope", "scope"), ("made", "created_at"))
)


@app.command()
@with_client
def history(
    client: Client,
    revision: Annotated[int | None, typer.Argument(metavar="REVISION", help="Show all that this change did.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=250, help="How many changes to list.")] = 20,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Show who changed what and when, newest first."""
    if revision is None:
        show(
            client.call("/v1/history", query={"limit": limit}, shape={"changes": [dict]})["changes"],
            output,
            CHANGE_COLUMNS,
        )
        return 0
    change = client.call(f"/v1/history/{revision}", shape={"items": [dict]})
    if output is OutputFormat.table:
        show([change], output, CHANGE_COLUMNS)
        echo()
        show(change["items"], output, ITEM_COLUMNS)
    else:
        show(change, output, ())
    return 0


@app.command()
@with_change
def undo(
    change: Change,
    revision: Annotated[int | None, typer.Argument(metavar="REVISION", help="Which change; else the last.")] = None,
    output: AnyForm = OutputFormat.table,
) -> int:
    """Undo a change by a new change; rejected if a later change has changed its values again."""
    if revision is None:
        found = change.client.call("/v1/history", query={"limit": 1}, shape={"changes": [{"revision": int}]})["changes"]
        if not found:
            raise UsageError("there is no change to undo: dets history is empty")
        revision = int(found[0]["revision"])
        change = replace(change, if_revision=revision if change.if_revision is None else change.if_revision)
    answer = change.make("POST", f"/v1/history/{revision}/undo", shape=CHANGED_MANY)
    if output is not OutputFormat.table:
        show(answer, output, ())
        return 0
    undone = f"revision {revision} undone: {counted(answer['changed'], 'value')}"
    echo(f"{undone} as before ({change.outcome(answer['revision'])})")
    return 0


@app.command("overrides")
@with_client
def list_overrides(client: Client, output: AnyForm = OutputFormat.table) -> int:
    """List the overrides, the file's values instead, and whether they are effective."""
    show(client.pages("/v1/overrides", "overrides"), output, OVERRIDE_COLUMNS)
    return 0


@app.command("export")
@with_client
def export_overrides(
    client: Client,
    file: Annotated[Path | None, typer.Argument(help="Where to; - or none prints it.")] = None,
) -> int:
    """Write all overrides as one JSON document, for dets import."""
    text = json_text(client.call("/v1/export"), 1) + "\n"
    if file is None or str(file) == "-":
        sys.stdout.write(text)
    else:
        file.write_text(text, encoding="utf-8")
        echo(f"wrote {file}")
    return 0


@app.command("import")
@with_change
def import_overrides(
    change: Change,
    file: Annotated[Path, typer.Argument(help="What dets export has written; - is the standard input.")],
    output: AnyForm = OutputFormat.table,
) -> int:
    """Replace all overrides by those of an exported document: all of it, or nothing."""
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
        document = json.loads(text)
    except OSError as error:
        raise InvalidValueError("FILE", str(file), f"cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InvalidValueError("FILE", str(file), f"is not JSON as dets export writes it: {error}") from error
    answer = change.make("POST", "/v1/import", document, if_match="*", shape=CHANGED_MANY | {"inactive": [dict]})
    print_changed(change, answer, output)
    if output is OutputFormat.table and answer["inactive"]:
        echo(f"{counted(len(answer['inactive']), 'override')} kept, and not in force:")
        show(answer["inactive"], output, OVERRIDE_COLUMNS)
    return 0


@tokens.command("create")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is; the history names it.")],
    scope: Annotated[str, typer.Option(help="read, or write, which includes read.")] = "read",
    config: OfConfig = CONFIG,
    store: OfStore = None,
) -> int:
    """Create a token and print it, for the only time: the store keeps only its hash."""
    with _tokens(config, store) as all_tokens:
        echo(all_tokens.create(name, scope))
    return 0


@tokens.command("list")
def list_tokens(config: OfConfig = CONFIG, store: OfStore = None, output: AnyForm = OutputFormat.table) -> int:
    """List the tokens: their names and scopes."""
    with _tokens(config, store) as all_tokens:
        rows = [{"name": row.name, "scope": row.scope, "created_at": row.created_at} for row in all_tokens.all()]
    show(rows, output, TOKEN_COLUMNS)
    return 0


@tokens.command("revoke")
def revoke_token(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is.")],
    config: OfConfig = CONFIG,
    store: OfStore = None,
) -> int:
    """Revoke a token, at once."""
    with _tokens(config, store) as all_tokens:
        all_tokens.revoke(name)
    echo(f"revoked {name}")
    return 0


@contextmanager
def _tokens(config: Path, store: Path | None) -> Iterator[Tokens]:
    """Yield the token store: of ``store``, else of the configuration, in SQLite or in etcd."""
    from apps.settings.tokens import Tokens

    if store is None:
        from controller.config.loader import load_config

        loaded = load_config(config)
        if loaded.cluster is not None:
            in_etcd = rooms.commands("cluster").tokens_of(loaded.cluster)
            try:
                yield in_etcd
            finally:
                in_etcd.close()
            return
        store = Path(loaded.rest.store)
        if str(store) == ":memory:":
            raise InvalidValueError("config", str(config), "keeps its store in memory, which holds no tokens")
    all_tokens = Tokens(os.fspath(store))
    try:
        yield all_tokens
    finally:
        all_tokens.close()
