"""The YAML reader: positions, YAML 1.1's traps, and what it refuses."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support.configs import refused

from controller.config.yaml_document import Bounds, ConfigError, ConfigProblem, Document, read_document, show_value


def problems(text: str) -> list[tuple[int, int, str]]:
    return [(problem.line, problem.column, problem.message) for problem in read_document(text).problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("10", 10),
        ("-3", -3),
        ("+3", 3),
        ("0", 0),
        ("2.5", 2.5),
        (".5", 0.5),
        ("1.0e+3", 1000.0),
        ("true", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("False", False),
        ("40M", "40M"),
        # what YAML 1.1 reads otherwise than it is written stays text
        ("010", "010"),
        ("0x10", "0x10"),
        ("0b11", "0b11"),
        ("1_000", "1_000"),
        ("1:30.5", "1:30.5"),
        ("no", "no"),
        ("on", "on"),
        ("1e9", "1e9"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("2024-01-01", "2024-01-01"),
        ("00000000000000e1", "00000000000000e1"),
        ('"10"', "10"),
        ("!!str 10", "10"),
        ("9" * 41, "9" * 41),
    ],
)
def test_scalars_are_read_as_they_are_written(text: str, value: object) -> None:
    document = read_document(f"key: {text}\n")
    assert document.problems == ()
    assert document.data == {"key": value}
    assert type(document.data["key"]) is type(value)


def test_values_and_keys_are_located() -> None:
    document = read_document("top:\n  list: [1, 22]\n  10: x\n")
    assert document.data == {"top": {"list": [1, 22], "10": "x"}}
    assert document.locate(("top", "list", "[1]")) == (2, 13)
    assert document.locate(("top", "10")) == (3, 7)
    assert document.locate(("top", "10"), at_key=True) == (3, 3)


def test_an_absent_path_is_located_at_the_innermost_section_there_is() -> None:
    document = read_document("a: 1\ntop:\n  inner: {x: 1}\n")
    assert document.locate(("top", "inner", "gone")) == (3, 3)
    assert document.locate(("top", "gone", "too")) == (2, 1)
    assert document.locate(("gone",)) == (1, 1)


@pytest.mark.parametrize("again", ["a: 2", '"a": 2'])
def test_a_duplicate_key_names_both_lines(again: str) -> None:
    document = read_document(f"top:\n  a: 1\n  b: 1\n  {again}\n")
    assert document.problems == (ConfigProblem(4, 3, "top.a", "is written twice: first in line 2, again in line 4"),)


def test_every_duplicate_is_told_and_a_quoted_number_is_the_number() -> None:
    text = 'a: 1\na: 2\n10:\n  c: 1\n  c: 2\n"10": 3\n'
    assert [line for line, _, _ in problems(text)] == [2, 5, 6]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: &x [1]\nb: *x\n", 2, "alias"),
        ("a: &x [*x]\n", 1, "alias"),
        ("a: 1\nb: !!python/object:os.system x\n", 2, "tag"),
        ("a: 1\nb: !thing {c: 1}\n", 2, "tag"),
        ("a: !!set [x]\n", 1, "tag"),
        ("[a]: 1\n", 1, "a key must be"),
        ("a: [1\nb: 2\n", 2, "not YAML"),
        ("a:\n\tb: 1\n", 2, "not YAML: a tab stands where only spaces can indent"),
        ("a: 1\n---\nb: 1\n", 2, "not YAML"),
        ("a: \x07\n", 0, "characters"),
        ("", 0, "empty"),
        ("# only a comment\n", 0, "empty"),
        ("a: &x b\n*x : 1\n", 2, "a key that is an alias"),
    ],
)
def test_what_is_refused(text: str, line: int, words: str) -> None:
    found = problems(text)
    assert len(found) == 1, found
    assert found[0][0] == line
    assert words in found[0][2]


@pytest.mark.parametrize("depth", [40, 900, 200_000])
def test_deep_nesting_is_refused_and_not_a_crash(depth: int) -> None:
    found = problems("[" * depth + "]" * depth)
    assert found
    assert "nested" in found[0][2]


def test_the_error_has_one_line_per_problem_in_the_order_of_the_file() -> None:
    error = ConfigError(
        "f.yaml",
        [ConfigProblem(3, 1, "b", "is bad"), ConfigProblem(1, 9, "", "syntax"), ConfigProblem(0, 0, "", "whole")],
    )
    assert str(error) == "f.yaml: whole\nf.yaml:1:9: syntax\nf.yaml:3:1: b: is bad"
    assert [problem.line for problem in error.problems] == [0, 1, 3]


def test_a_shown_value_is_one_short_line() -> None:
    assert show_value("a\nb") == r"'a\nb'"
    assert len(show_value(list(range(100)))) == 60


plain = st.recursive(
    st.integers(-(10**9), 10**9) | st.booleans() | st.text(st.characters(codec="ascii", exclude_categories=["Cc"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
@settings(max_examples=100)
def test_plain_data_survives_being_written_and_read(data: object) -> None:
    # default_style='"' quotes strings and tags numbers; the plain style leaves quoting to PyYAML's own resolver
    text = yaml.safe_dump({"key": data}, sort_keys=False)
    document, with_care = read_document(text), read_document(f"--- &all\n{text}")  # an anchor takes care
    aliased = any("alias" in problem.message for problem in document.problems)
    assert aliased or (document.problems == () and document.data == {"key": data})
    assert repr(document) == repr(with_care)


def test_a_file_that_is_as_it_should_be_is_not_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(yaml, "compose")  # which takes ten times as long as reading it
    assert read_document("a: [1, x, {b: '2'}]\nc:\n").data == {"a": [1, "x", {"b": "2"}], "c": None}


BOUNDS = Bounds({"few": 2}, 3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("few: {a: 1, b: 2}\nothers: [1, 2, 3]\n", None),
        ("few: {a: 1, b: 2, c: 3, d: 4}\n", (1, 19, "few", 2)),
        ("top:\n  few: [1, 2, 3]\n", (2, 15, "top.few", 2)),
        ("top: [[1, 2, 3, 4]]\n", (1, 17, "top[0]", 3)),
        ("few:\n" + "".join(f"  k{number}:\n" for number in range(10_000)) + "\tno YAML", (4, 3, "few", 2)),
        ("a: 1\nb: 1\nc: 1\nd: 1\n", (4, 1, "", 3)),
        ("a: &x {few: [1, 2, 3]}\n", (1, 20, "a.few", 2)),
        ("few: {[1]: 2, b: 1, c: 1}\n", (1, 21, "few", 2)),
    ],
)
def test_more_than_there_can_be_is_the_one_problem(text: str, problem: tuple[int, int, str, int] | None) -> None:
    found = read_document(text, BOUNDS).problems
    if problem is None:
        assert not found
        return
    line, column, path, most = problem
    assert found == (ConfigProblem(line, column, path, f"has more than {most} entries, the maximum"),)


def test_an_alias_is_told_once() -> None:
    text = "vlans:\n  10: &v {send_limit: &r 10M, receive_limit: *r}\n  20: *v\n"
    switches = "switches: {s1: {dpid: 1, ports: {1: {capacity: 1G, access: 10}}}}\n"
    lines = refused(text + switches)
    assert len(lines) == 2
    assert all("is an alias" in line for line in lines)


@given(st.text(max_size=60))
@settings(max_examples=300)
def test_any_text_is_read_or_refused_never_a_crash(text: str) -> None:
    assert isinstance(read_document(text), Document)
