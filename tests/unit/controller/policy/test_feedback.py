"""Feedback from receivers to senders, as columns."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.errors import InvalidValueError
from controller.policy.feedback import CongestionFeedback


def ints(*values):
    return np.array(values, dtype=np.int64)


def test_every_sender_hears_what_was_said_to_it():
    said = CongestionFeedback(ints(2, 5), {"marked_bps": np.array([1e6, 0.0]), "passed_bps": np.array([4e6, np.nan])})
    assert len(said) == 2
    assert said.column_for("marked_bps", ints(5, 0, 2, 9)).tolist() == pytest.approx(
        [0.0, np.nan, 1e6, np.nan], nan_ok=True
    )
    assert np.isnan(said.column_for("passed_bps", ints(5)))[0]
    with pytest.raises(KeyError):
        said.column_for("floor_bps", ints(2))


def test_silence_is_unknown():
    silence = CongestionFeedback(ints(), {"floor_bps": np.empty(0)})
    assert len(silence) == 0
    assert np.isnan(silence.column_for("floor_bps", ints(0, 1))).all()


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
def test_it_is_a_dictionary_of_entries(messages, asked):
    rows = sorted(messages)
    said = CongestionFeedback(ints(*rows), {"floor_bps": np.array([messages[row] for row in rows], dtype=np.float64)})
    expected = [messages.get(row, np.nan) for row in asked]
    assert said.column_for("floor_bps", ints(*asked)).tolist() == pytest.approx(expected, nan_ok=True)
