"""Text from outside as it is printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.loader import parse_config
from controller.config.yaml_document import ConfigError
from controller.printable import printable, printable_json

ANY = st.text(st.characters(exclude_categories=()))  # halves of surrogate pairs too


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("blue-1 \u00e9\u4e2d\U0001f600", "blue-1 \u00e9\u4e2d\U0001f600"),
        ("\x1b[2J\r\n\t\x00\x7f", "\\x1b[2J\\r\\n\\t\\x00\\x7f"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),  # C1
        ("\u202e\u2066\u200f\u061c", "\\u202e\\u2066\\u200f\\u061c"),  # bidi
        ("\u2028\u2029\u200b\ufeff\u00ad", "\\u2028\\u2029\\u200b\\ufeff\\xad"),
        ("\ud800\U000e0041", "\\ud800\\U000e0041"),
    ],
)
def test_what_has_no_glyph_is_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(ANY)
def test_nothing_moves(text: str) -> None:
    assert printable(text).isprintable()
    assert printable(text, keep="\n").replace("\n", "").isprintable()
    assert printable(printable(text)) == printable(text)
    printable(text).encode("utf-8")


@given(st.recursive(ANY, lambda inner: st.lists(inner) | st.dictionaries(ANY, inner)))
def test_json_says_the_same(value: object) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert json.loads(text) == json.loads(json.dumps(value))
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    "text",
    [
        r'{"\e[2J\nok: 1 switch": 5}',
        r'{vlans: {10: {name: "\e]0;x\a\u202e"}}}',
        r'{vlans: {"1\n0": {send_limit: "\u009b1m"}}}',
        r'{switches: {"s1\n\u2028": {dpid: 1}}}',
        r'{switches: {s1: {dpid: "\e", ports: {"\n": {capacity: "\r1M"}}}}}',
        r'"\e[2J',
        r"&a\e [*b]",
        '{a: "\x1b"}',
        '{"a": !\u202e x}',
    ],
)
def test_a_hostile_file_moves_nothing(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_config(text)
    lines = str(refused.value).split("\n")
    assert len(lines) == len(refused.value.problems)
    assert all(line.isprintable() for line in lines), lines
