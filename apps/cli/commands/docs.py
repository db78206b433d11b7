"""``dets docs``: the parts of the documentation that are generated from the code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from apps.cli.support.common import FAILED, print_error

app = typer.Typer()


@app.command(hidden=True)
def docs(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(help="The pages.")] = Path("docs"),
    check: Annotated[bool, typer.Option("--check", help="Only list those out of date; exit status 1 if any.")] = (
        False
    ),
) -> int:
    """Write the reference parts of the documentation again: configuration keys, command line, REST."""
    from apps.cli.reference import pages, regenerate

    status = 0
    for page in pages(folder):
        text = page.read_text(encoding="utf-8")
        new = regenerate(text, context.find_root().command)
        if new == text:
            continue
        if check:
            print_error(f"{page} is out of date: run dets docs")
            status = FAILED
        else:
            page.write_text(new, encoding="utf-8")
            print(f"wrote {page}")
    return status
