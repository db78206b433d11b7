"""A controller whose REST interface is called in process."""

from __future__ import annotations

import pytest
from support.rest_in_process import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()
