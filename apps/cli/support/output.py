"""What commands that ask print: a table for people, or everything there is as JSON or YAML."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from controller.units import format_rate

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Row = Mapping[str, Any]


class Form(enum.StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"
    yaml = "yaml"


AnyForm = Annotated[Form, typer.Option("--output", "-o", help="What to print.")]
# Beyond what any terminal has: a table that goes to a file or a pipe is not to be folded.
_UNFOLDED = 4096


class Column:
    """A column of a table: its title, and what a row has there. Numbers and rates stand to the right."""

    def __init__(self, title: str, cell: str | Callable[[Row], object], right: bool = False) -> None:
        self.title = title
        self.right = right
        self._cell = (lambda row: row.get(cell)) if isinstance(cell, str) else cell

    def text(self, row: Row) -> str:
        """Return the cell of a row; what is unknown is a dash."""
        value = self._cell(row)
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "-"
        return "-" if value is None or value == "" else str(value)


def rate(title: str, name: str) -> Column:
    """Return a column of rates, as people write them, of the member ``name`` in bit/s."""
    return Column(title, lambda row: None if row.get(name) is None else format_rate(row[name]), right=True)


def number(title: str, name: str) -> Column:
    """Return a column of numbers."""
    return Column(title, name, right=True)


def show(answer: Any, form: Form, columns: Sequence[Column]) -> None:
    """Print an answer, a list of objects or one object: all of it as JSON or YAML, its columns as a table."""
    if form is not Form.table:
        print(text_of(answer, form))
    elif isinstance(answer, Mapping):
        width = max(len(column.title) for column in columns)
        for column in columns:
            print(f"{column.title:{width}}  {column.text(answer)}")
    else:
        console().print(table(answer, columns))


def text_of(answer: Any, form: Form) -> str:
    """Return an answer as JSON or YAML text."""
    if form is Form.json:
        return json.dumps(answer, indent=2, ensure_ascii=False, allow_nan=False)
    import yaml

    return str(yaml.safe_dump(answer, sort_keys=False, allow_unicode=True)).rstrip("\n")


def table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """Return rows as a table without lines."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        made.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        made.add_row(*(Text(column.text(row)) for column in columns))
    return made


def console() -> Console:
    """Return where tables are printed."""
    from rich.console import Console

    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_UNFOLDED)
