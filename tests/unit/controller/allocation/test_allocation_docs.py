"""The examples of docs/allocation.md run, and its tables of parameters, and those of docs/policies, are in force."""

from __future__ import annotations

import re
from dataclasses import fields

from support.paths import ROOT

from controller.allocation.interface import AllocationInput
from controller.allocation.parameters import parameters_of
from controller.policy.registry import policies

DOCS = ROOT / "docs"
TEXT = (DOCS / "allocation.md").read_text(encoding="utf-8")


def test_examples_run_one_after_the_other():
    """The example of an algorithm is run as a file of the project as well, by tests/model/test_docs_examples.py."""
    blocks = list(re.finditer(r"```python\n(.*?)```", TEXT, re.DOTALL))
    assert len(blocks) >= 5
    names: dict[str, object] = {"__name__": "example"}
    for block in blocks:
        above = "\n" * TEXT.count("\n", 0, block.start(1))  # so that errors name the right line
        exec(compile(above + block[1], "docs/allocation.md", "exec", dont_inherit=True), names)


def test_the_table_of_columns_is_complete():
    section = TEXT.partition("## Adding an algorithm")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {field.name for field in fields(AllocationInput)}


def test_the_table_of_parameters_is_complete_and_right():
    text = TEXT + "".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "policies").glob("*.md")))
    text = re.sub(r"^\| (`.+?`(?:, `.+?`)+) (\|.*)$", _row_for_each_policy, text, flags=re.MULTILINE)
    for name, policy in policies.items():
        for key, parameter in parameters_of(policy).items():
            shown = f"`{name}` | `{key}` | {parameter.default:g} | {parameter.bounds}"
            meaning = "" if policy.borrows else f" {parameter.about} |"
            assert f"| {shown} |{meaning}" in text


def _row_for_each_policy(row):
    """Return a row that names several policies as a row for each."""
    return "\n".join(f"| {name} {row[2]}" for name in row[1].split(", "))
