"""What compiled passes take: a tuple of columns whose rows are side by side, or copied, and numbers."""

from __future__ import annotations

import numpy as np
import pytest

from controller.metering import measurement_native
from controller.native_loader import load_native

library = measurement_native.library
pytestmark = pytest.mark.skipif(library is None, reason="no C compiler was there when it was installed")


def columns() -> list[np.ndarray]:
    """What ``dets_taken`` takes: rates and five more columns of two entries, their receiver and the sums."""
    entries = [np.array([1.0, 2.0]) for _ in range(5)]
    return [np.array([1, 2], np.uint32), *entries, np.array([0, 0]), np.zeros(1)]


def test_a_module_that_was_built_of_other_sources_is_not_used() -> None:
    assert load_native(library.__name__, "dets_watch") is library
    assert load_native(library.__name__, "dets_watch", "dets_new") is None


def test_a_module_that_was_not_built_is_none() -> None:
    assert load_native("controller.metering._other", "dets_watch") is None


def test_columns_whose_rows_are_apart_are_copied() -> None:
    whole, apart = columns(), columns()
    apart[1] = np.array([[1.0, 7.0], [2.0, 8.0]])[:, 0]
    for its in (whole, apart):
        library.dets_taken(tuple(its), 1.0, 1e3)
    np.testing.assert_array_equal(apart[-1], whole[-1])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "a tuple of columns and 2 numbers, not 0 arguments"),
        ((tuple(columns()),), "not 1 arguments"),
        ((tuple(columns()), 1.0, 2.0, 3.0), "not 4 arguments"),
        ((columns(), 1.0, 1e3), "columns are no tuple of arrays, but a list"),
        (((*columns()[:-1], [0.0]), 1.0, 1e3), "column 7 is no array with rows, but a list"),
        (((*columns()[:-1], np.array(0.0)), 1.0, 1e3), "column 7 is no array with rows, but a numpy.ndarray"),
        ((tuple(columns()[:-1]), 1.0, 1e3), "7 columns are too few"),
        (((), 1.0, 1e3), "0 columns are too few"),
        ((tuple(columns()), "1", 1e3), "must be real number, not str"),
    ],
)
def test_other_arguments_are_refused(arguments: tuple[object, ...], reason: str) -> None:
    with pytest.raises(TypeError, match=reason):
        library.dets_taken(*arguments)


@pytest.mark.parametrize("number", [0.5, None])
def test_a_whole_number_is_no_other(number: object) -> None:
    with pytest.raises(TypeError):
        library.dets_read(tuple(columns()), number)


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        library.dets_read(tuple(columns()), 1 << 64)


@pytest.mark.parametrize(
    "name", ["dets_sums", "dets_places", "dets_watch", "dets_look", "dets_meter_rates", "dets_enforce", "dets_receive"]
)
def test_no_pass_reads_columns_that_are_not_there(name: str) -> None:
    numbers = {"dets_look": 5, "dets_meter_rates": 3, "dets_enforce": 3, "dets_receive": 2}.get(name, 0)
    with pytest.raises(TypeError, match="too few"):
        getattr(library, name)((), *[1] * numbers)
