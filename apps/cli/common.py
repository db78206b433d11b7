"""What the sub-commands of ``dets`` share: exit statuses, the words of their messages."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

FAILED, REFUSED, INTERRUPTED = 1, 2, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def complain(message: str) -> None:
    """Tell on stderr, in the command's name, why it does not do what was asked."""
    print(f"dets: {message}", file=sys.stderr)


def counted(count: int, noun: str) -> str:
    """Return ``1 switch``, ``2 switches``."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{count} {noun if count == 1 else noun + plural}"
