"""Long bodies: the same values as by the ordinary decoder, a piece at a time, and not more than any request needs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from support.rest_in_process import Desk, problem_of
from werkzeug.test import TestResponse

from apps.rest.http.body import MAX_BODY_BYTES, MAX_LONG_BODY_BYTES, StrictJson
from apps.rest.http.incremental_json import MAX_ITEM_CHARACTERS, MAX_ITEMS, MAX_MEMBERS
from apps.rest.http.problems import HttpRefusedError, shown_value

STRICT = StrictJson(Flask("test"))
LEAF = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9)
ITEM = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODY = st.dictionaries(st.text(max_size=9), ITEM | st.lists(ITEM, max_size=6), max_size=MAX_MEMBERS)


def decoded(text: str | bytes) -> Any:
    return STRICT.loads_long(text if isinstance(text, bytes) else text.encode(), lambda: None)


@settings(derandomize=True, deadline=None)
@given(BODY, st.sampled_from([None, 0, 2]), st.booleans())
def test_it_is_what_the_ordinary_decoder_returns(body: dict[str, Any], indent: int | None, ascii_only: bool) -> None:
    assert decoded(json.dumps(body, indent=indent, ensure_ascii=ascii_only)) == body


@settings(derandomize=True, deadline=None)
@given(BODY, st.integers(0, 300), st.sampled_from(list('{}[],:"\\ x1')))
def test_broken_text_is_refused_as_the_ordinary_decoder_does(body: dict[str, Any], at: int, character: str) -> None:
    text = json.dumps(body)
    text = text[:at] + character + text[at + 1 :]

    def outcome(decode: Any) -> Any:
        try:
            return decode(text)
        except ValueError:
            return "refused"

    expected = outcome(STRICT.loads)
    assert outcome(decoded) == (expected if isinstance(expected, dict) else "refused")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": [1], "a": [2]}', "'a' more than once"),
        ('{"a": [{"b": 1, "b": 2}]}', "'b' more than once"),
        ('{"a": [1 2]}', "line 1 column 10"),
        ('{"a": [1]} x', "Extra data: line 1 column 12"),
        ('{"a": ["\\ud800"]}', "surrogate"),
        ('{"a": ' + "[" * 60_000, "nested too deeply|longer than 4096"),
        ("[1, 2]", "Expecting '{'"),
        ("{1: 2}", "property name"),
        ('{"a": ["' + "x" * MAX_ITEM_CHARACTERS + '"]}', "longer than 4096 characters"),
        (b'{"a": ["\xff"]}', "utf-8"),
    ],
)
def test_faults_are_named_with_their_place(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decoded(text)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({str(number): number for number in range(MAX_MEMBERS + 1)}),
        json.dumps({"a": [1] * MAX_ITEMS, "b": [1]}),
        '{"a": ' + "1" * MAX_ITEM_CHARACTERS + "1}",
    ],
    ids=["keys", "items", "digits"],
)
def test_there_are_bounds_on_keys_and_items(text: str) -> None:
    with pytest.raises(HttpRefusedError, match="more than"):
        decoded(text)


def test_the_most_is_taken_and_others_run_in_between() -> None:
    body = {"limits": [{"vlan_vid": number, "switch": "s1", "port_no": 1} for number in range(MAX_ITEMS)]}
    text = json.dumps(body).encode()
    turns = [0]

    def yield_control() -> None:
        turns[0] += 1

    assert STRICT.loads_long(text, yield_control) == body
    assert turns[0] > len(text) / 25_000


def sent(desk: Desk, body: bytes, **headers: str) -> TestResponse:
    return desk.client.post("/v1/limits", data=body, content_type="application/json", headers=headers)


@pytest.mark.parametrize(
    "junk",
    [
        "{" + ",".join(f'"{number}":1' for number in range(300_000)) + "}",
        '{"limits":[' + ",".join(["[]"] * 1_300_000) + "]}",
        '{"limits":[' + ",".join(["{}"] * 1_300_000) + "]}",
    ],
    ids=["keys", "lists", "objects"],
)
def test_junk_of_4_mb_is_refused_when_it_has_too_many_values(junk: str) -> None:
    desk = Desk()
    before = desk.fingerprint()
    assert 3 * 2**20 < len(junk) <= MAX_LONG_BODY_BYTES
    assert "more than" in problem_of(sent(desk, junk.encode()), 413)["detail"]
    assert desk.fingerprint() == before


def test_a_long_body_changes_limits_as_a_short_one_does() -> None:
    desk = Desk()
    item = {"vlan_vid": 10, "switch": "s1", "port_no": 1, "send_limit_bps": 30_000_000}
    text = json.dumps({"limits": [item]}).ljust(MAX_BODY_BYTES + 1)
    assert sent(desk, text.encode()).status_code == 200
    assert desk.get("/v1/vns/10/s1/1")["send_limit_bps"] == 30_000_000


def test_a_long_value_is_shown_without_being_written_whole() -> None:
    class Never:
        def __str__(self) -> str:
            raise AssertionError("it is written although it is not shown")

    assert len(str(shown_value(["x" * 90, "y" * 90, Never()]))) == 103
