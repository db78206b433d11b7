"""The picture and the summary of the comparison's page: systems by criteria.

They are made from the tables of ``experiments/papers/comparison.py`` in a digest. The title of a table is "BLOCK:
FIGURE: CRITERION". It has a heading and a row for each system; a cell is "MEAN +- HALF THE INTERVAL" with a unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from experiments.papers.comparison import BLOCKS, CPU, LONGEST, MET, MODS, USE

CELL_WIDTH, ROW_HEIGHT, NAMES_WIDTH, HEAD_HEIGHT = 104, 26, 190, 74  # pixels
COLOURS = {"yes": "#b7e1c0", "**no**": "#f3b6ae", "undecided": "#f7e3a6", "-": "#e6e6e6"}
LEGEND = (
    "green: criterion met; red: not met; yellow: undecided, the threshold is within the 95 % interval; grey: no promise"
)
FONT = 'font-family="sans-serif" font-size="12"'

Tables = Mapping[str, Sequence[Sequence[str]]]


def picture(tables: Tables) -> str:
    """Return the picture of all tables as SVG: a column for each table, a row for each system, coloured by verdict."""
    columns: list[tuple[str, str, dict[str, dict[str, str]]]] = []
    for title, table in tables.items():
        block, figure, _criterion = title.split(": ", 2)
        columns.append((block, figure, _by_system(table)))
    systems = _systems(tables)
    width, height = NAMES_WIDTH + CELL_WIDTH * len(columns) + 4, HEAD_HEIGHT + ROW_HEIGHT * len(systems) + 30
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" {FONT}>']
    parts.append(f'<rect width="{width}" height="{height}" fill="white"/>')
    for number, (block, figure, cells_of_system) in enumerate(columns):
        left = NAMES_WIDTH + CELL_WIDTH * number
        if not number or block != columns[number - 1][0]:  # the first column of its block
            parts.append(_text(left + 4, 18, block, ' font-weight="bold"'))
        for line, text in enumerate(figure.split(", ")):
            parts.append(_text(left + 4, 38 + 15 * line, text))
        for row, system in enumerate(systems):
            if cells := cells_of_system.get(system):
                top = HEAD_HEIGHT + ROW_HEIGHT * row
                box = f'x="{left + 1}" y="{top + 1}" width="{CELL_WIDTH - 2}" height="{ROW_HEIGHT - 2}"'
                parts.append(f'<rect {box} fill="{COLOURS[cells[MET]]}"/>')
                parts.append(_text(left + 6, top + 17, list(cells.values())[1]))  # the value by which it is judged
    parts += [_text(4, HEAD_HEIGHT + ROW_HEIGHT * row + 17, system) for row, system in enumerate(systems)]
    return "\n".join([*parts, _text(4, height - 9, LEGEND), "</svg>"]) + "\n"


def criteria(tables: Tables) -> list[list[str]]:
    """Return a heading, and a row for each figure: its title, its criterion, and what its cells in the picture show."""
    rows = {(*title.split(": ", 2)[1:], table[0][1]): None for title, table in tables.items()}
    return [["figure", "criterion", "in the picture"], *map(list, rows)]


def summary(tables: Tables) -> list[list[str]]:
    """Return a heading, and a row for each system: the criteria met in each block, and the range of each measure."""
    measures = (USE, LONGEST, MODS, CPU)
    rows = []
    for system in _systems(tables):
        cells = {title: row[system] for title, table in tables.items() if system in (row := _by_system(table))}
        met = [
            _met(cell[MET] for title, cell in cells.items() if title.startswith(f"{block}: "))
            for block in BLOCKS.values()
        ]
        rows.append([system, *met, *(_range(cell.get(head, "-") for cell in cells.values()) for head in measures)])
    return [["system", *(f"criteria met, {block.lower()}" for block in BLOCKS.values()), *measures], *rows]


def _systems(tables: Tables) -> list[str]:
    """Return the systems of all tables, in the order of their first table."""
    return list(dict.fromkeys(row[0] for table in tables.values() for row in table[1:]))


def _by_system(table: Sequence[Sequence[str]]) -> dict[str, dict[str, str]]:
    """Return the cells of a table by system, then by heading."""
    heads, *rows = table
    return {row[0]: dict(zip(heads, row, strict=True)) for row in rows}


def _met(verdicts: Iterable[str]) -> str:
    """Return "N of M": N verdicts are "yes", M are not "-"; without any verdict "-"."""
    judged = [verdict for verdict in verdicts if verdict != "-"]
    undecided = f", {judged.count('undecided')} undecided" if "undecided" in judged else ""
    return f"{judged.count('yes')} of {len(judged)}{undecided}" if judged else "-"


def _range(cells: Iterable[str]) -> str:
    """Return the least and the largest mean of cells such as "99.5 +- 0.1 %"; cells without a number are ignored."""
    words_of_cell = [cell.split() for cell in cells if cell[0].isdigit()]
    means = sorted((float(words[0]), words[0]) for words in words_of_cell)
    unit = " %" if words_of_cell and words_of_cell[0][-1] == "%" else ""
    return "-" if not means else " to ".join(dict.fromkeys((means[0][1], means[-1][1]))) + unit


def _text(x: int, y: int, words: str, style: str = "") -> str:
    """Return an SVG text element."""
    return f'<text x="{x}" y="{y}"{style}>{escape(words)}</text>'
