"""A controller whose REST interface is called in process."""

from __future__ import annotations

import pytest
from support.rest_in_process import Desk


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
def busy() -> Desk:
    """Hosts at ports 1 and 3 send 30 and 20 Mb/s to the one at port 2, whose limit in VLAN 10 is 40 Mb/s."""
    desk = Desk()
    desk.connect()
    desk.talk(1, 2)
    desk.talk(3, 2)
    desk.run([30e6, 20e6], [0.0, 0.0], 1)
    return desk
