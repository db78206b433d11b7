"""What the application starts, and the order in which it stops."""

from __future__ import annotations

from unittest.mock import MagicMock

import pytest
import support.framework  # noqa: F401

from apps.dets import Dets


def test_the_store_is_closed_while_the_greenlets_that_use_it_still_run() -> None:
    """A greenlet that is killed releases the settings' lock, but its thread goes on using the store."""
    application = MagicMock()
    Dets.close(application)
    calls = [name for name, *_ in application.mock_calls]
    assert calls.index("settings.close") < calls.index("loops.stop") < calls.index("membership.leave")


def test_audits_run_for_all_switches_and_for_those_that_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gc.freeze", lambda: None)  # this process goes on
    monkeypatch.setattr(Dets.__base__, "start", lambda self: None)
    application = Dets.__new__(Dets)
    for name in ("config", "loops", "manager", "queues", "shell"):
        setattr(application, name, MagicMock())
    application.start()
    run = [call.args[2] for call in application.loops.every.call_args_list]
    assert application.shell.audits.run_all in run
    assert application.shell.audits.run_requested in run
