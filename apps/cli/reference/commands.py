"""Every sub-command of ``dets`` in one table; their options stay in ``--help``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def reference(command: Any) -> str:
    """Return a table of each visible sub-command of ``command``, with its arguments and its effect."""
    rows = [
        f"| `{_usage(name, one)}` | {_first_sentence(one.help or '')} |" for name, one in _commands("dets", command)
    ]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the (name, command) of each visible command without sub-commands."""
    children = command.list_commands(None) if hasattr(command, "list_commands") else []
    if not children:
        yield name, command
    for child in (command.get_command(None, child_name) for child_name in children):
        if not child.hidden:
            yield from _commands(f"{name} {child.name}", child)


def _usage(name: str, command: Any) -> str:
    """Return the command with its arguments and its mandatory options."""
    words = [_word(param) for param in command.params if param.required or param.param_type_name == "argument"]
    return " ".join([name, *words])


def _word(param: Any) -> str:
    value = str(param.metavar or param.name.upper()).strip("[]")
    if param.param_type_name == "option":
        return f"{param.opts[0]} {value}"
    return value if param.required else f"[{value}]"


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".").replace("|", "\\|") + "."
