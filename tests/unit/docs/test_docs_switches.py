"""The table of emulated switches is that of the test which runs them."""

from __future__ import annotations

import re

from support.paths import ROOT

from experiments.switch.emulated import EMULATED


def test_the_page_has_the_switches_that_are_run() -> None:
    text = (ROOT / "docs" / "switches.md").read_text()
    table = text.partition("| a switch that | reaction of the controller | fault in the health |\n|---|---|---|\n")[
        2
    ].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    said = {name: re.sub("`", "", said) for name, _done, said in rows}
    assert said == {kind.name: kind.expected_fault for kind in EMULATED}
