"""``dets reload``: the configuration file, read again by a running controller."""

from __future__ import annotations

from typing import Any

import typer

from apps.cli.support.common import counted
from apps.cli.support.connection import Change, changing
from apps.cli.support.output import AnyForm, Column, Form, show
from controller.units import format_rate

app = typer.Typer()


def _shown(name: str) -> Any:
    def show_value(row: dict[str, Any]) -> str:
        value = row[name]
        rate = row["path"].endswith("_bps") and isinstance(value, int)
        return "" if value is None else format_rate(value) if rate else str(value)

    return show_value


COLUMNS = (
    Column("key", lambda row: row["path"].removesuffix("_bps")),
    Column("was", _shown("before")),
    Column("is", _shown("after")),
)


@app.command("reload")
@changing
def reload(change: Change, output: AnyForm = Form.table) -> int:
    """Let the controller read its configuration file again, and show what differs.

    The file is checked as a whole; on any error the old configuration stays. What did not change is not touched.
    """
    answer = change.make("POST", "/v1/reload")
    if output is not Form.table:
        show(answer, output, ())
        return 0
    if answer["changes"]:
        show(answer["changes"], output, COLUMNS)
    print(f"{counted(len(answer['changes']), 'value')} changed ({change.outcome(answer['revision'])})")
    return 0
