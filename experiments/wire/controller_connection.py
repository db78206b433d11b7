"""The socket of one software switch: connect, exchange messages, disconnect and reconnect on command."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from controller.openflow.constants import ControllerRole
from experiments.switch.datapath import Datapath
from experiments.switch.openflow_channel import OpenFlowChannel


class ControllerConnection(asyncio.Protocol):
    """The connection of a Datapath to one of its controllers, in the event loop of a fabric.

    It reconnects by itself.

    ``handle`` gets the bytes that arrive; it runs in the loop, under the fabric's lock. ``source`` is the local
    address. While the controller does not read, nothing is read from the controller either.
    """

    def __init__(
        self,
        datapath: Datapath,
        conversation: OpenFlowChannel,
        address: tuple[str, int],
        retry_s: float,
        lock: threading.RLock,
        source: str | None = None,
    ) -> None:
        self.datapath, self.conversation = datapath, conversation
        self.handle: Callable[[ControllerConnection, bytes], None] = lambda connection, data: None
        self.connections = 0
        self._address = address
        self._source = None if source is None else (source, 0)
        self._retry_s = retry_s
        self._lock = lock
        self._enabled, self._closed = asyncio.Event(), asyncio.Event()
        self._enabled.set()
        self._silent = False
        self._held = b""
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None

    @property
    def connected(self) -> bool:
        """Whether the TCP connection is open."""
        return self._transport is not None

    async def run(self) -> None:
        """Reconnect until cancelled; raises the errors of ``handle``."""
        loop = asyncio.get_running_loop()
        while True:
            await self._enabled.wait()
            self._closed.clear()
            with suppress(OSError):
                await loop.create_connection(lambda: self, *self._address, local_addr=self._source)
                try:
                    await self._closed.wait()
                finally:
                    if self._transport is not None:
                        self._transport.abort()
                if self._error is not None:
                    raise self._error
            await asyncio.sleep(self._retry_s)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin an OpenFlow connection."""
        assert isinstance(transport, asyncio.Transport)
        with self._lock:
            self.datapath.start_connection(self.conversation)
        self._transport = transport
        self._held = b""
        self.connections += 1
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Handle received bytes, or keep them while the switch is silent; close a connection with invalid messages."""
        if self._silent:
            self._held += data
            return
        try:
            self.handle(self, data)
        except Exception as error:  # it ends this switch, and the fabric reports it when it stops
            self._error = error
            self.disconnect(reconnect=True)
            return
        if self.conversation.broken and self._transport is not None:
            self.flush()  # the error reply with the reason
            self._transport.close()

    def pause_writing(self) -> None:
        """Stop reading while the controller does not read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        """End the OpenFlow connection."""
        self._transport = None
        self.conversation.role = ControllerRole.EQUAL  # a disconnected master is no master
        self._closed.set()

    def flush(self) -> None:
        """Send the datapath's pending messages to this controller; drop them if not connected. Loop thread only."""
        if self._silent:
            return  # messages are kept: a stalled switch sends them later
        with self._lock:
            data = self.datapath.drain_messages(self.conversation)
        if self._transport is not None and data:
            self._transport.write(data)

    def disconnect(self, reconnect: bool) -> None:
        """Close the connection at once; reconnect automatically, or only after ``reconnect``. Loop thread only."""
        if not reconnect:
            self._enabled.clear()
        if self._transport is not None:
            self._transport.abort()

    def reconnect(self) -> None:
        """Connect again after ``disconnect(reconnect=False)``. Loop thread only."""
        self._enabled.set()

    def set_silent(self, silent: bool) -> None:
        """Stop reading and sending while the connection stays open; afterwards process all that arrived."""
        self._silent = silent
        if not silent:
            held, self._held = self._held, b""
            if held:
                self.handle(self, held)
            self.flush()
