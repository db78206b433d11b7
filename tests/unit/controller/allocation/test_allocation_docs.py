"""The examples of docs/allocation.md run, and its table of parameters is the one in force."""

from __future__ import annotations

import re

from support.paths import ROOT

from controller.allocation import describe_algorithms
from controller.allocation.network_max_min import NetworkMaxMin

TEXT = (ROOT / "docs" / "allocation.md").read_text(encoding="utf-8")


def test_examples_run_one_after_the_other():
    """The example of an algorithm is run as a file of the project as well, by tests/model/test_docs_examples.py."""
    blocks = list(re.finditer(r"```python\n(.*?)```", TEXT, re.DOTALL))
    assert len(blocks) >= 5
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        above = "\n" * TEXT.count("\n", 0, block.start(1))  # so that errors name the right line
        exec(compile(above + block[1], "docs/allocation.md", "exec", dont_inherit=True), names)


def test_the_table_of_parameters_is_complete_and_right():
    described = {algorithm["name"]: algorithm for algorithm in describe_algorithms()}
    for name in ("fs", "sp", "fp", "fe", "level"):
        algorithm = described[name]
        for parameter in algorithm["parameters"]:
            shown = f"`{algorithm['name']}` | `{parameter['name']}` | {parameter['default']:g} | {parameter['bounds']}"
            assert f"| {shown} | {parameter['meaning']} |" in TEXT
    for parameter in NetworkMaxMin.parameters:
        assert f"| `max-min` | `{parameter.name}` | {parameter.default:g} | {parameter.bounds} |" in TEXT
