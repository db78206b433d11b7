"""The socket of one software switch: it connects, talks, is cut off and comes back as told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from controller.openflow.constants import ControllerRole
from experiments.switch.conversation import Conversation
from experiments.switch.datapath import Datapath

_READ_BYTES = 1 << 20


class ControllerConnection:
    """Keeps a Datapath connected to one of its controllers, from within the event loop of a fabric.

    ``handle`` gets the bytes that arrive; it runs in the loop, under the fabric's lock. It connects from ``source``.
    """

    def __init__(
        self,
        datapath: Datapath,
        conversation: Conversation,
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
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._silent = False
        self._held = b""
        self._writer: asyncio.StreamWriter | None = None

    @property
    def connected(self) -> bool:
        """Whether the TCP connection stands."""
        return self._writer is not None

    async def run(self) -> None:
        """Connect again and again until cancelled."""
        while True:
            await self._wanted.wait()
            with suppress(OSError):
                reader, writer = await asyncio.open_connection(*self._address, local_addr=self._source)
                try:
                    await self._talk(reader, writer)
                finally:
                    self._writer = None
                    self.conversation.role = ControllerRole.EQUAL  # a master that is gone is no master
                    if not writer.is_closing():
                        writer.transport.abort()
            await asyncio.sleep(self._retry_s)

    def flush(self) -> None:
        """Send what the datapath has to say, if anyone listens. Loop thread only."""
        if self._silent:
            return  # it is kept: a stalled switch speaks later
        with self._lock:
            data = self.datapath.take_messages(self.conversation)
        if self._writer is not None and data:
            self._writer.write(data)

    def disconnect(self, reconnect: bool) -> None:
        """Cut the connection at once; come back by itself, or only after ``reconnect``. Loop thread only."""
        if not reconnect:
            self._wanted.clear()
        if self._writer is not None:
            self._writer.transport.abort()

    def reconnect(self) -> None:
        """Connect again after ``disconnect(reconnect=False)``. Loop thread only."""
        self._wanted.set()

    def set_silent(self, silent: bool) -> None:
        """Neither listen nor speak, though the connection stands; afterwards catch up with all that came in between."""
        self._silent = silent
        if not silent:
            held, self._held = self._held, b""
            if held:
                self.handle(self, held)
            self.flush()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with self._lock:
            self.datapath.start_connection(self.conversation)
        self._writer = writer
        self._held = b""
        self.connections += 1
        self.flush()
        while not self.conversation.broken and (data := await reader.read(_READ_BYTES)):
            if self._silent:
                self._held += data
            else:
                self.handle(self, data)
                await writer.drain()
        self.flush()  # the error that tells why
        writer.close()
