"""An application that breaks a loop of the DETS application from within, while a file named by SABOTAGE is there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ryu.base.app_manager import RyuApp, lookup_service_brick
from ryu.lib import hub


class SabotageError(Exception):
    """What the loop fails with."""


class FailingLoopApp(RyuApp):
    """Makes the rounds of the queues' loop fail."""

    def start(self) -> Any:
        """Take the place of what the loop calls."""
        hub.spawn(self._arm)
        return super().start()

    def _arm(self) -> None:
        queues = lookup_service_brick("Dets").queues
        apply = queues._apply

        def broken(dpid: int) -> None:
            if Path(os.environ["SABOTAGE"]).exists():
                raise SabotageError(f"switch {dpid} is beyond me")
            apply(dpid)

        queues._apply = broken
