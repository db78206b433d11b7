"""Shared by the sub-commands of ``dets``: exit statuses and message texts."""

from __future__ import annotations

import contextlib
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from controller.errors import InvalidValueError
from controller.printable import printable

FAILED, REFUSED, INTERRUPTED = 1, 2, 130
LIMITS = ("send", "receive", "send_ceiling", "receive_ceiling")  # values of a VN, as options and files name them
# typer includes click from 0.26 on, and depends on it before; typer's own errors derive from click's in both.
UsageError: Any = typer.BadParameter.__mro__[1]
ClickError: Any = typer.BadParameter.__mro__[2]

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]

Parameters = Annotated[
    list[str] | None, typer.Option("--parameter", metavar="KEY=VALUE", help="A parameter of the algorithm; repeatable.")
]


class Commands(TyperGroup):
    """A command group whose help shows each command's whole first sentence, even in a narrow terminal."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the visible commands as a list of definitions."""
        commands: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        shown = [(name, entry.get_short_help_str(sys.maxsize)) for name, entry in commands.items() if not entry.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(shown)


def parse_parameters(texts: list[str] | None) -> dict[str, object]:
    """Return the parameters in ``KEY=VALUE`` texts; raise InvalidValueError for another form."""
    return dict(_parse_parameter(text) for text in texts or [])


def as_option(error: InvalidValueError) -> InvalidValueError:
    """Return the error with the option's name if it is about a parameter."""
    group, _, name = error.key.partition(".")
    return InvalidValueError("parameter", f"{name}={error.value}", error.reason) if group == "parameters" else error


def _parse_parameter(text: str) -> tuple[str, object]:
    """Return (key, value) of KEY=VALUE; the value is a number if it reads as one."""
    key, equals, value = text.partition("=")
    if not (key and equals and value):
        raise InvalidValueError("parameter", text, "is not KEY=VALUE, such as d=2")
    for kind in (int, float):
        with contextlib.suppress(ValueError):
            return key, kind(value)
    return key, value


def print_error(message: str, keep: str = "") -> None:
    """Print an error on stderr, with the command's name: on one line, unless ``keep`` has a line end."""
    print(f"dets: {printable(message, keep)}", file=sys.stderr)


def echo(text: object = "", *, flush: bool = False) -> None:
    """Print a line; foreign parts of it, such as names, cannot end the line or move the cursor."""
    print(printable(str(text)), flush=flush)


def counted(count: int, noun: str) -> str:
    """Return ``1 switch``, ``2 switches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun if count == 1 else noun + plural}"
