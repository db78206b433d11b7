"""Output of queries: a table for people, or all data as JSON or YAML."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from apps.cli.support.answers import AnswerError
from apps.cli.support.common import echo
from controller.printable import printable, printable_json
from controller.units import format_rate, with_whole_numbers

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

Row = Mapping[str, Any]


class OutputFormat(enum.StrEnum):
    """The format of printed output."""

    table = "table"
    json = "json"
    yaml = "yaml"


AnyForm = Annotated[OutputFormat, typer.Option("--output", "-o", help="What to print.")]
UNKNOWN = "-"
# Wider than any terminal: a table in a file or a pipe must not be wrapped.
_UNFOLDED = 4096


# Errors of a cell's function if a row lacks a value, or has a value of another type.
_INVALID_ROW_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
_MAX_CELL = 1000


class Column:
    """A column of a table: its title, and its value in a row. Numbers and rates are right-aligned.

    An ``optional`` column is omitted if all its cells are empty.
    """

    def __init__(
        self, title: str, cell: str | Callable[[Row], object], right: bool = False, optional: bool = False
    ) -> None:
        self.title = title
        self.right = right
        self.optional = optional
        self._cell = (lambda row: row.get(cell)) if isinstance(cell, str) else cell

    def text(self, row: Row) -> str:
        """Return the cell of a row, on one line; an unknown value is a dash.

        Raises AnswerError for an invalid value.
        """
        try:
            value = self._cell(row)
        except _INVALID_ROW_ERRORS as error:
            text = f"no {error}" if isinstance(error, KeyError) else error
            raise AnswerError(f"there is no telling {self.title!r}: {text}") from error
        if isinstance(value, bool):
            return "yes" if value else "no"
        values = value if isinstance(value, list) else [value]
        if not all(isinstance(item, str | int | float | None) for item in values):
            raise AnswerError(f"there is no telling {self.title!r}: it is neither text nor a number")
        if isinstance(value, list):
            return ", ".join(map(_cell_text, value)) or UNKNOWN
        return UNKNOWN if value is None or value == "" else _cell_text(value)


def _cell_text(value: object) -> str:
    """Return a value as text without unprintable characters, at most _MAX_CELL characters and dots."""
    text = str(with_whole_numbers(value))
    return printable(text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}...")


def rate(title: str, name: str) -> Column:
    """Return a column of formatted rates, of the member ``name`` in bit/s."""
    return Column(title, lambda row: None if row.get(name) is None else format_rate(row[name]), right=True)


def share(title: str, name: str) -> Column:
    """Return an optional column of shares, in percent."""
    return Column(title, lambda row: None if row.get(name) is None else f"{row[name]:.1%}", right=True, optional=True)


def location(end: Row) -> str:
    """Return an edge port as an operator writes it: ``s1:3``, ``s1:eth3``."""
    return f"{end['switch']}:{end.get('port', end['port_no'])}"


def number(title: str, name: str) -> Column:
    """Return a column of numbers."""
    return Column(title, name, right=True)


def show(answer: Any, form: OutputFormat, columns: Sequence[Column]) -> None:
    """Print a response, a list of objects or one object: all of it as JSON or YAML, or its columns as a table."""
    if form is not OutputFormat.table:
        print(text_of(answer, form))
    elif isinstance(answer, Mapping):
        columns = _needed(columns, [answer])
        width = max(len(column.title) for column in columns)
        lines = [f"{column.title:{width}}  {column.text(answer)}" for column in columns]
        for line in lines:
            echo(line)
    else:
        terminal = console()
        terminal.print(fit_table(answer, columns, terminal))


def text_of(answer: Any, form: OutputFormat) -> str:
    """Return a response as JSON or YAML text."""
    try:
        if form is OutputFormat.json:
            return json_text(answer, 2)
        import yaml

        text = str(yaml.safe_dump(answer, sort_keys=False, allow_unicode=True)).rstrip("\n")
        if not text.replace("\n", "").isprintable():
            text = str(yaml.safe_dump(answer, sort_keys=False)).rstrip("\n")  # escapes everything except ASCII
    except RecursionError as error:
        raise AnswerError("it is nested too deeply") from error
    return text


def json_text(value: Any, indent: int | None = None) -> str:
    """Return a value as JSON, with escapes for unprintable characters."""
    return printable_json(json.dumps(value, indent=indent, ensure_ascii=False, allow_nan=False))


def table(rows: Sequence[Row], columns: Sequence[Column]) -> Table:
    """Return rows as a table without lines."""
    from rich.table import Table
    from rich.text import Text

    result = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        result.add_column(column.title, justify="right" if column.right else "left", no_wrap=True)
    for row in rows:
        result.add_row(*(Text(column.text(row)) for column in columns))
    return result


def fit_table(
    rows: Sequence[Row], columns: Sequence[Column], terminal: Console, height: int | None = None
) -> Table | Text:
    """Return rows as a table, or if that is too wide for the terminal, each row as a block of lines.

    ``height`` is the available number of lines; further rows are omitted.
    """
    from rich.text import Text

    columns = _needed(columns, rows)
    fitting = table(rows if height is None else rows[: max(height - 1, 1)], columns)
    if terminal.measure(fitting, options=terminal.options.update(width=_UNFOLDED)).maximum <= terminal.width:
        return fitting
    shown = rows if height is None else rows[: max(height // (len(columns) + 1), 1)]
    width = max(len(column.title) for column in columns)
    blocks = ("\n".join(f"{column.title:{width}}  {column.text(row)}" for column in columns) for row in shown)
    return Text("\n\n".join(blocks))


def narrowed(
    rows: Sequence[Row], columns: Sequence[Column], terminal: Console, least_first: Sequence[str]
) -> list[Column]:
    """Return the columns that fit into the terminal's width.

    Columns with the titles ``least_first`` are left out, in this order, until the others fit.
    """
    kept, wide = _needed(columns, rows), terminal.options.update(width=_UNFOLDED)
    for title in least_first:
        if terminal.measure(table(rows, kept), options=wide).maximum <= terminal.width:
            break
        kept = [column for column in kept if column.title != title]
    return kept


def _needed(columns: Sequence[Column], rows: Sequence[Row]) -> list[Column]:
    """Return the columns without optional ones that are empty in all rows."""
    return [column for column in columns if not column.optional or any(column.text(row) != UNKNOWN for row in rows)]


def console() -> Console:
    """Return the console for tables: the terminal's width, or no limit for a file or a pipe."""
    from rich.console import Console

    terminal = Console(highlight=False)
    return terminal if terminal.is_terminal else Console(highlight=False, width=_UNFOLDED)


def print_replay(result: Mapping[str, Any]) -> None:
    """Print whether a replay made the same decisions, and the differences from another algorithm."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    text = f"{result['intervals']} intervals, {result['seconds']:g} s: "
    text += "every decision is the recorded one, bit for bit"
    if not result["same"]:
        text = f"{result['intervals']} intervals: decided otherwise, first in interval {result['first_other']}"
    console.print(text)
    if result["algorithm"] is None:
        return
    table = Table(title=f"limits in force and as {result['algorithm']} would set them, Mb/s", title_justify="left")
    means = ("in force, mean", f"{result['algorithm']}, mean", "largest difference")
    for column in ("VLAN", "from", "to", "intervals", *means):
        table.add_column(column, justify="left" if column in ("from", "to") else "right")
    for row in result["differences"]:
        rates = (f"{row[name] / 1e6:.3f}" for name in ("mean_bps", "alternative_mean_bps", "largest_bps"))
        names = (Text(printable(row[end])) for end in ("from", "to"))  # a recording may have any text
        table.add_row(str(row["vlan"]), *names, str(row["intervals"]), *rates)
    console.print(table)
