"""Reports the controller's state to a service manager, by systemd's protocol (sd_notify(3)).

Without a service manager it does nothing.
"""

from __future__ import annotations

import logging
import os
import socket
import time

LOG = logging.getLogger("dets.service")
WATCHDOG_INTERVAL_S = 1.0


class ServiceManager:
    """The service manager that started this process, if any."""

    def __init__(self) -> None:
        # Child processes, such as a user's shell, are not the service.
        name = os.environ.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + name[1:] if name.startswith("@") else name  # "@" stands for the 0 of an abstract name
        self._fed_s = 0.0

    def ready(self) -> None:
        """Report that the service is ready, after the start or a reload."""
        self._notify("READY=1")

    def reloading(self) -> None:
        """Report that a new configuration is being applied."""
        self._notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the service is stopping."""
        self._notify("STOPPING=1")

    def ping_watchdog(self, now_s: float) -> None:
        """Report a round of the control loop at ``now_s``, once in WATCHDOG_INTERVAL_S."""
        if now_s - self._fed_s >= WATCHDOG_INTERVAL_S:
            self._fed_s = now_s
            self._notify("WATCHDOG=1")

    def _notify(self, text: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as plain:
                plain.sendto(text.encode(), self._address)
        except OSError as error:  # the manager has restarted with another socket: the controller continues
            LOG.debug("the service manager cannot be notified of %r: %s", text, error)
