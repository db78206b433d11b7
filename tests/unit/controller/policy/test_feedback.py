"""Feedback from receivers to senders, as columns."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import InvalidValueError
from controller.policy.feedback import CongestionFeedback


def ints(*values):
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize("rows", [(1, 1), (2, 1), (-1, 0)])
def test_rows_that_are_none_are_refused(rows):
    with pytest.raises(InvalidValueError, match=r"feedback\.entry.*ascending rows"):
        CongestionFeedback(ints(*rows), {})


@pytest.mark.parametrize("column", [np.zeros(2), np.zeros((1, 1)), np.zeros(1, dtype=np.int64)])
def test_columns_that_do_not_fit_are_refused(column):
    with pytest.raises(InvalidValueError, match=r"feedback\.floor_bps.*one float for each of 1 messages"):
        CongestionFeedback(ints(3), {"floor_bps": column})


@settings(max_examples=60)
@given(st.dictionaries(st.integers(0, 20), st.floats(0, 1e9), max_size=10), st.lists(st.integers(0, 25), max_size=15))
def test_every_sender_hears_what_was_said_to_it_and_silence_is_unknown(messages, asked):
    rows = sorted(messages)
    said = CongestionFeedback(ints(*rows), {"floor_bps": np.array([messages[row] for row in rows], dtype=np.float64)})
    assert len(said) == len(rows)
    with pytest.raises(KeyError) if rows else nullcontext():
        said.column_for("marked_bps", ints(*asked))
    expected = [messages.get(row, np.nan) for row in asked]
    assert said.column_for("floor_bps", ints(*asked)).tolist() == pytest.approx(expected, nan_ok=True)
