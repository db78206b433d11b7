"""The picture of the comparison: systems by promises, as SVG, which needs no library and is text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

CELL, ROW, NAMES, HEAD = 104, 26, 190, 74
COLOURS = {"yes": "#b7e1c0", "**no**": "#f3b6ae", "undecided": "#f7e3a6", "-": "#e6e6e6"}
FONT = 'font-family="sans-serif" font-size="12"'


def picture(blocks: Mapping[str, Sequence[tuple[str, Mapping[str, tuple[str, str]]]]]) -> str:
    """Return a drawing of each block's columns, one beside the other.

    A column is a heading, and by system the verdict and what was found; a system without an entry has no cell.
    """
    columns = [(block, *column) for block, of in blocks.items() for column in of]
    systems = list(dict.fromkeys(system for _, _, found in columns for system in found))
    width, height = NAMES + CELL * len(columns) + 4, HEAD + ROW * len(systems) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT}>']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    begin = NAMES
    for block, of in blocks.items():
        parts.append(f'<text x="{begin + 4}" y="18" font-weight="bold">{escape(block)}</text>')
        begin += CELL * len(of)
    for number, (_, heading, found) in enumerate(columns):
        left = NAMES + CELL * number
        for line, words in enumerate(heading.split("\n")):
            parts.append(f'<text x="{left + 4}" y="{38 + 15 * line}">{escape(words)}</text>')
        for row, system in enumerate(systems):
            if system in found:
                kept, text = found[system]
                top = HEAD + ROW * row
                box = f'x="{left + 1}" y="{top + 1}" width="{CELL - 2}" height="{ROW - 2}"'
                parts.append(f'<rect {box} fill="{COLOURS[kept]}"/>')
                parts.append(f'<text x="{left + 6}" y="{top + 17}">{escape(text)}</text>')
    for row, system in enumerate(systems):
        parts.append(f'<text x="4" y="{HEAD + ROW * row + 17}">{escape(system)}</text>')
    parts.append(
        f'<text x="4" y="{height - 9}">green: kept, red: not kept, yellow: the interval of the seeds does not '
    )
    parts[-1] += "tell, grey: nothing promised</text>"
    return "\n".join([*parts, "</svg>"]) + "\n"
