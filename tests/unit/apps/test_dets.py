"""The order in which the application stops."""

from __future__ import annotations

from unittest.mock import MagicMock

import support.framework  # noqa: F401

from apps.dets import Dets


def test_the_store_is_closed_while_the_greenlets_that_use_it_still_run() -> None:
    """A greenlet that is killed releases the settings' lock, but its thread goes on using the store."""
    application = MagicMock()
    Dets.close(application)
    calls = [name for name, *_ in application.mock_calls]
    assert calls.index("settings.close") < calls.index("loops.stop") < calls.index("membership.leave")
