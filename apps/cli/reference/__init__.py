"""The parts of ``docs/`` that are generated from the code: configuration keys, commands and REST requests.

A page holds them between ``<!-- made by dets docs: NAME -->`` and ``<!-- end -->``; text by hand is around them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from controller.errors import InvalidValueError

_PART = re.compile(r"(<!-- made by dets docs: (\S+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def parts(command: Any) -> Mapping[str, Callable[[], str]]:
    """Return the generator of each part, by name."""
    from apps.cli.reference import commands, configuration, rest

    return {
        "commands": partial(commands.reference, command),
        "configuration": configuration.reference,
        "rest": rest.reference,
    }


def regenerate(text: str, command: Any) -> str:
    """Return a page with its parts generated again from ``command``, the command of ``dets``.

    Raises InvalidValueError for an unknown part.
    """
    known = parts(command)

    def replace(match: re.Match[str]) -> str:
        if match[2] not in known:
            raise InvalidValueError("part", match[2], f"is not one of {', '.join(known)}")
        return f"{match[1]}\n{known[match[2]]().strip()}\n\n{match[3]}"

    return _PART.sub(replace, text)


def pages(folder: Path) -> list[Path]:
    """Return the pages under a folder with generated parts, in order; InvalidValueError if there is none."""
    found = [path for path in sorted(folder.glob("*.md")) if _PART.search(path.read_text(encoding="utf-8"))]
    if not found:
        raise InvalidValueError("folder", str(folder), "has no page with a part made by dets docs")
    return found
