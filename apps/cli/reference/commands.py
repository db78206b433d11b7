"""Every sub-command of ``dets`` with its arguments and options."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from apps.cli.support.connection import CHANGE_PANEL, CONTROLLER_PANEL

_HELP = "--help"
_SHARED = {
    CHANGE_PANEL: "Options of all that change something in a running controller",
    CONTROLLER_PANEL: "Options of all that ask a running controller",
}


def reference(command: Any) -> str:
    """Return a section for each sub-command of ``command`` that is shown, and one for each shared set of options."""
    commands = list(_commands("dets", command))
    lines = [_section(name, command) for name, command in commands]
    for panel, title in _SHARED.items():
        options = {one.name: one for _, command in commands for one in command.params if _panel(one) == panel}
        lines += [f"### {title}", "", *_table(list(options.values()))]
    return "\n".join(lines)


def _commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    children = getattr(command, "commands", {})
    if not children:
        yield name, command
    for child in children.values():
        if not child.hidden:
            yield from _commands(f"{name} {child.name}", child)


def _section(name: str, command: Any) -> str:
    options = [one for one in command.params if _HELP not in one.opts and _panel(one) not in _SHARED]
    shares = {_panel(one): None for one in command.params if _panel(one) in _SHARED}
    words = " ".join(_usage(one) for one in options if one.required or one.param_type_name == "argument")
    usage = f"    {name} {words}".rstrip() + (
        " [OPTIONS]" if any(not one.required for one in options) or shares else ""
    )
    lines = [f"### `{name}`", "", " ".join((command.help or "").split()), "", usage, ""]
    lines += _table(options) if options else []
    lines += [f"Beside these: {' and '.join(_also(panel) for panel in shares)}.", ""] if shares else []
    return "\n".join(lines)


def _also(panel: str) -> str:
    anchor = _SHARED[panel].lower().replace(" ", "-")
    return f"[the options of {'a change' if panel == CHANGE_PANEL else 'asking'}](#{anchor})"


def _usage(one: Any) -> str:
    if one.param_type_name == "argument":
        return _metavar(one) if one.required else f"[{_metavar(one)}]"
    return f"{one.opts[0]} {_metavar(one)}".rstrip()


def _table(options: list[Any]) -> list[str]:
    lines = ["| argument or option | default | meaning |", "|---|---|---|"]
    for one in options:
        names = [_metavar(one)] if one.param_type_name == "argument" else [*one.opts, *one.secondary_opts]
        shown = ", ".join(f"`{name}`" for name in names)
        if one.param_type_name == "option" and _metavar(one):
            shown += f" {_metavar(one)}"
        env = f" Environment: `{one.envvar}`." if one.envvar else ""
        cells = (shown, _default(one), f"{one.help or ''}{env}")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return [*lines, ""]


def _metavar(one: Any) -> str:
    if getattr(one, "is_flag", False):
        return ""
    kind = one.type_descriptor.annotation
    if one.metavar:
        return str(one.metavar)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return "|".join(str(choice.value) for choice in kind)
    if one.param_type_name == "argument":
        return str(one.name).upper()
    return {int: "N", float: "NUMBER", Path: "FILE"}.get(kind, "TEXT")


def _default(one: Any) -> str:
    if one.required:
        return "required"
    value = one.default
    if value is None or value is False or value == () or callable(value):
        return ""
    return "yes" if value is True else f"`{getattr(value, 'value', value)}`"


def _panel(one: Any) -> str:
    return str(getattr(one, "rich_help_panel", None) or "")
