"""Where messages of JSON-RPC end: nothing but their own braces tells."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apps.ovsdb.ovsdb_client import OvsdbError, _JsonMessage
from controller.errors import ProtocolError

VALUES = st.recursive(
    st.none() | st.integers() | st.text(alphabet='{}[]"\\ab', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text('{}"\\', max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text("ab{", max_size=3), VALUES, max_size=3), st.integers(1, 9), st.binary(max_size=9))
@settings(derandomize=True, deadline=None)
def test_a_message_ends_where_its_json_does_however_it_comes(
    message: dict[str, object], piece: int, rest: bytes
) -> None:
    text = b" \n" + json.dumps(message).encode()
    frame, buffer, found = _JsonMessage(), bytearray(), []
    for start in range(0, len(text + rest), piece):
        buffer += (text + rest)[start : start + piece]
        end = frame.end(buffer)
        if end is not None:
            found.append(end)
            break
    assert found == [len(text)]


@pytest.mark.parametrize("text", [b"[1]", b'  "{}"', b"}"])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(ProtocolError, match="expected a JSON object"):
        _JsonMessage().end(bytearray(text))


@pytest.mark.parametrize(("text", "seen"), [(b'{"a": [1, 2, 3', 14), (b'{"a": "b\\', 8)])
def test_what_was_looked_at_is_not_looked_at_again(text: bytes, seen: int) -> None:
    frame = _JsonMessage()
    assert frame.end(bytearray(text)) is None
    assert frame._at == seen


def test_a_short_reason_is_shown_whole_and_a_long_one_is_cut() -> None:
    assert str(OvsdbError("unix:/db", "no  such\nbridge")) == "OVSDB unix:/db: no such bridge"
    assert OvsdbError("unix:/db", "e" * 500).reason == "e" * 197 + "..."
