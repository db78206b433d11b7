"""A fabric of software switches in one thread: links, hosts, rates, time and faults, for tests and benchmarks.

with WireFabric(("127.0.0.1", 6653)) as fabric:
    fabric.add_switch(1, {1: 1e9, 2: 1e9})
    fabric.add_switch(2, {1: 1e9, 2: 1e9})
    fabric.link((1, 2), (2, 2))
    fabric.inject(1, 1, frame)
    assert fabric.wait_for(lambda: fabric.received(2, 1))
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from experiments.switch.datapath import Datapath
from experiments.switch.options import DatapathOptions
from experiments.wire.controller_connection import ControllerConnection
from experiments.wire.fluid_traffic import FluidTraffic

_MAX_HOPS_PER_TURN = 20_000
_MAX_FRAMES_KEPT = 10_000
_Value = TypeVar("_Value")


class ManualClock:
    """A clock that only ``advance`` moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class WireFabric:
    """Switches, their links and their hosts. All methods may be called from any thread.

    Time is real, and passes in steps of ``tick_s``, unless ``clock`` is a ManualClock: then ``advance`` moves it.
    ``standbys`` are further controllers of every switch; methods are about the first controller unless they get another
    number. ``sources`` are the addresses that switches connect from, by dpid, if any. ``rates`` carries traffic without
    packets; it is updated before any message is handled, unless the last update was less than ``rate_step_s`` ago.
    """

    def __init__(
        self,
        controller: tuple[str, int],
        *,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = 0.01,
        retry_s: float = 0.2,
        rate_step_s: float = 0.001,
        standbys: Sequence[tuple[str, int]] = (),
        sources: Mapping[int, str] | None = None,
        **rate_options: Any,
    ) -> None:
        self.switches: dict[int, Datapath] = {}
        self.on_link: Callable[[tuple[int, int], bytes], bytes] = lambda _end, frame: frame
        """Return the frame that a link carries, for the port (dpid, port_no) and the frame that leaves by it."""
        self.problems: list[str] = []
        """Forbidden conditions that occurred, such as a loop; ``stop`` raises AssertionError if there are any."""
        self._controllers = (controller, *standbys)
        self._sources = sources or {}
        self._clock = clock
        self._tick_s = tick_s
        self._retry_s = retry_s
        self._rate_step_s = rate_step_s
        self._rates_moved_s = float("-inf")
        self._links: dict[tuple[int, int], tuple[int, int]] = {}
        self._received: dict[tuple[int, int], deque[bytes]] = defaultdict(lambda: deque(maxlen=_MAX_FRAMES_KEPT))
        self._connections: dict[tuple[int, int], ControllerConnection] = {}
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self.rates = FluidTraffic(self.switches, lambda dpid, port_no: self._links.get((dpid, port_no)), **rate_options)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(check=error is None)

    def start(self) -> None:
        """Start the thread; switches that were added already begin to connect."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="wire-fabric", daemon=True)
        self._thread.start()
        for dpid in self.switches:
            self._connect(dpid)
        if not isinstance(self._clock, ManualClock):
            self._in_loop(lambda: self._spawn(self._tick()))

    def stop(self, check: bool = True) -> None:
        """Close every connection and end the thread; raises AssertionError for forbidden conditions."""
        if self._loop is None or self._thread is None:
            return
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        self._loop = self._thread = None
        if check and self.problems:
            raise AssertionError("; ".join(self.problems))

    def add_switch(
        self,
        dpid: int,
        ports: Mapping[int, float],
        options: DatapathOptions | None = None,
        names: Mapping[int, str] | None = None,
    ) -> Datapath:
        """Add a switch with ``ports`` (port_no to link rate in bit/s) and let it connect; return it.

        ``names`` has the names of the ports' interfaces, by port_no; others are named ethN.

        Direct changes of the Datapath belong under ``with fabric.locked():``.
        """
        with self._lock:
            datapath = Datapath(dpid, options)
            for _ in self._controllers[1:]:
                datapath.add_controller()
            for port_no, rate_bps in ports.items():
                datapath.add_port(port_no, rate_bps, self._clock(), (names or {}).get(port_no, ""))
            self.switches[dpid] = datapath
        if self._loop is not None:
            self._connect(dpid)
        return datapath

    def link(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        """Connect two (dpid, port_no); ports without a link lead to hosts."""
        with self._lock:
            self._links[one], self._links[other] = other, one

    def unlink(self, one: tuple[int, int]) -> None:
        """Remove a link, which both switches detect."""
        with self._lock:
            for dpid, port_no in (one, self._links.pop(one)):
                self._links.pop((dpid, port_no), None)
                self.switches[dpid].set_port_up(port_no, False)
            self._run_until_idle()

    def set_link_up(self, one: tuple[int, int], up: bool) -> None:
        """Set both ends of a link (or one host's port) up or down."""
        with self._lock:
            for dpid, port_no in filter(None, (one, self._links.get(one))):
                self.switches[dpid].set_port_up(port_no, up)
            self._run_until_idle()

    def inject(self, dpid: int, port_no: int, frame: bytes) -> None:
        """Send a frame from a host into a port; on return the tables have forwarded it completely."""
        with self._lock:
            self.switches[dpid].inject(port_no, frame, self._clock())
            self._run_until_idle()

    def received(self, dpid: int, port_no: int) -> list[bytes]:
        """Return the frames that the host behind a port has received, oldest first."""
        with self._lock:
            return list(self._received[dpid, port_no])

    def forget_received(self) -> None:
        """Delete the frames that hosts have received so far."""
        with self._lock:
            self._received.clear()

    def locked(self) -> threading.RLock:
        """Return the lock under which a test may read or change Datapaths and rates directly."""
        return self._lock

    def advance(self, seconds: float) -> None:
        """Advance the ManualClock, and everything with it; TypeError if the fabric's time is real."""
        if not isinstance(self._clock, ManualClock):
            raise TypeError("advance: the clock of this fabric goes by itself; give it a ManualClock")
        with self._lock:
            self._clock.now_s += seconds
            self._pass_time()

    def refresh(self) -> None:
        """Send messages made outside of the fabric's own methods, such as by ``Datapath.send_raw``."""
        with self._lock:
            self._run_until_idle()

    def connected(self, dpid: int, controller: int = 0) -> bool:
        """Whether the TCP connection of a switch is open."""
        return self._connections[dpid, controller].connected

    def connections(self, dpid: int) -> int:
        """Return how many times a switch has connected."""
        return self._connections[dpid, 0].connections

    def disconnect(self, dpid: int, *, keep_tables: bool = True, reconnect: bool = True, controller: int = 0) -> None:
        """Disconnect a switch; it connects again automatically, or (``reconnect`` False) after a call of ``reconnect``.

        Without ``keep_tables`` its tables are empty then, as after a restart.
        """

        def close() -> None:
            if not keep_tables:
                with self._lock:
                    self.switches[dpid].clear_tables()
            self._connections[dpid, controller].disconnect(reconnect)

        self._in_loop(close)

    def reconnect(self, dpid: int, controller: int = 0) -> None:
        """Let a disconnected switch connect again."""
        self._in_loop(self._connections[dpid, controller].reconnect)

    def set_silent(self, dpid: int, silent: bool, controller: int = 0) -> None:
        """Stall a switch (connected, it neither reads nor sends), or let it continue."""
        self._in_loop(lambda: self._connections[dpid, controller].set_silent(silent))

    def wait_for(self, condition: Callable[[], _Value], timeout_s: float = 10.0) -> _Value:
        """Return the condition's value as soon as it is true; TimeoutError after ``timeout_s`` of real time.

        The condition runs under the fabric's lock, in the caller's thread.
        """
        deadline_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                value = condition()
            if value:
                return value
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"not within {timeout_s} s")
            time.sleep(0.005)

    def _connect(self, dpid: int) -> None:
        """Start the connections of a switch to all controllers, in the loop."""

        def connect() -> None:
            datapath = self.switches[dpid]
            for controller, (address, conversation) in enumerate(
                zip(self._controllers, datapath.conversations, strict=True)
            ):
                retry_s, source = self._retry_s, self._sources.get(dpid)
                connection = ControllerConnection(datapath, conversation, address, retry_s, self._lock, source)
                connection.handle = self._handle
                self._connections[dpid, controller] = connection
                self._spawn(connection.run())

        self._in_loop(connect)

    def _handle(self, connection: ControllerConnection, data: bytes) -> None:
        """Process bytes from a controller: update rates if due, let the switch handle them, and send the replies."""
        datapath = connection.datapath
        with self._lock:
            now_s = self._clock()
            to_carry = {datapath.dpid: datapath}  # a benchmark has hundreds: not all are checked each time
            if now_s - self._rates_moved_s >= self._rate_step_s:
                self._rates_moved_s = now_s
                self.rates.advance(now_s)
                to_carry = self.switches
            datapath.receive(data, now_s, connection.conversation)
            for dpid in self._carry_frames(to_carry):
                for number in range(len(self._controllers)):
                    if (dpid, number) in self._connections:  # one may be about to connect
                        self._connections[dpid, number].flush()

    def _pass_time(self) -> None:
        """Advance rates and switches to the present time, and carry the frames that result."""
        now_s = self._clock()
        self._rates_moved_s = now_s
        self.rates.advance(now_s)
        for datapath in self.switches.values():
            datapath.advance(now_s)
        self._run_until_idle()

    def _run_until_idle(self) -> None:
        """Carry frames over links until none is in flight, then let the switches send messages."""
        self._carry_frames(self.switches)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._flush)

    def _carry_frames(self, sending: Mapping[int, Datapath]) -> set[int]:
        """Carry the frames of ``sending`` switches until none is in flight.

        Return the dpids of all affected switches.
        """
        affected = set(sending)
        in_flight = deque((dpid, *frame) for dpid, datapath in sending.items() for frame in datapath.drain_frames())
        hops = 0
        while in_flight:
            dpid, port_no, frame = in_flight.popleft()
            peer = self._links.get((dpid, port_no))
            if peer is None:
                self._received[dpid, port_no].append(frame)
                continue
            hops += 1
            if hops > _MAX_HOPS_PER_TURN:
                self.problems.append(f"a loop: a frame from {frame[6:12].hex(':')} to {frame[:6].hex(':')} never ends")
                break
            datapath = self.switches[peer[0]]
            affected.add(peer[0])
            datapath.inject(peer[1], self.on_link((dpid, port_no), frame), self._clock())
            in_flight.extend((peer[0], *frame_out) for frame_out in datapath.drain_frames())
        return affected

    def _flush(self) -> None:
        """Send the pending messages of all switches."""
        for connection in self._connections.values():
            connection.flush()

    async def _tick(self) -> None:
        """Let time pass every ``tick_s``, until cancelled."""
        while True:
            await asyncio.sleep(self._tick_s)
            with self._lock:
                self._pass_time()

    def _spawn(self, work: Any) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    async def _cancel(self) -> None:
        """End the tasks; errors of a task become problems."""
        for task in self._tasks:
            task.cancel()
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        self.problems += [
            repr(result)
            for result in results
            if isinstance(result, Exception) and not isinstance(result, asyncio.CancelledError)
        ]
        self._tasks.clear()

    def _in_loop(self, action: Callable[[], object]) -> None:
        """Run ``action`` in the loop's thread and wait for it; errors are raised in the caller."""
        if self._loop is None:
            raise RuntimeError("the fabric is not started")

        async def run() -> None:
            action()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)
