"""This node's role at each switch, as the switch confirmed: master where it may write, otherwise slave.

Every connection of a configured switch comes here first. Until the switch has confirmed this node as its master, only
role requests and reads pass to it (``controller.cluster.write_gate``); then it is brought up as usual.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from apps.runtime.connection.connection_limits import EvictionReason, LogRateLimiter
from controller.cluster.write_gate import WriteGate
from controller.errors import ProtocolError, SwitchReplyError
from controller.openflow.constants import ControllerRole, MessageType
from controller.openflow.messages import decode_role, encode_role_request, parse_error

if TYPE_CHECKING:
    from apps.runtime.connection.switch_connection import SwitchConnection

LOG = logging.getLogger("dets.cluster")
ROLE_TIMEOUT_S = 2.0
Request = tuple[ControllerRole, int]


@dataclass
class _SwitchRole:
    """The connection of one switch: the last requested role, and whether the controller has the switch.

    ``requested`` is None again if the same role may be requested once more.
    """

    connection: SwitchConnection
    gate: WriteGate
    requested: Request | None = None
    in_control: bool = False


class RoleManager:
    """Requests this node's role from switches whenever it changes.

    ``control`` takes a switch after this node became its master, ``release`` gives it up. ``wanted`` returns the role
    to request from a switch, None: none now; ``held`` the generation under which this node may change it, None: it may
    not. ``spawn`` calls a function next to the loop.
    """

    def __init__(
        self,
        desired: Callable[[int], Request | None],
        held: Callable[[int], int | None],
        now_s: Callable[[], float],
        spawn: Callable[..., object],
    ) -> None:
        self._desired_role, self._held, self._spawn = desired, held, spawn
        self.control: Callable[[SwitchConnection], None] = lambda connection: None
        self.release: Callable[[SwitchConnection], None] = lambda connection: None
        self._links: dict[int, _SwitchRole] = {}
        self._log_limiter = LogRateLimiter(now_s)
        self.refused = 0

    def connection(self, dpid: int) -> SwitchConnection | None:
        """Return the connection of a switch, under control or not; None if there is none."""
        link = self._links.get(dpid)
        return None if link is None or link.connection.closed else link.connection

    def reached(self) -> set[int]:
        """Return the switches that are connected, under control or not."""
        return {dpid for dpid, link in self._links.items() if not link.connection.closed}

    def on_connected(self, connection: SwitchConnection) -> None:
        """Handle a new connection of a configured switch."""
        gate = connection.gate
        assert isinstance(gate, WriteGate)
        gate.held = partial(self._held, connection.dpid)
        before = self._links.get(connection.dpid)
        link = self._links[connection.dpid] = _SwitchRole(connection, gate)
        if before is not None:
            before.connection.disconnect(EvictionReason.REPLACED)
        connection.keep()
        self._wait(link)
        if connection.closed:
            self._on_disconnected(link)
        else:
            self._ask_if_due(link)

    def on_demoted(self, connection: SwitchConnection) -> None:
        """Handle a switch that rejects this node as a slave: another node has a newer generation id."""
        link = self._links.get(connection.dpid)
        if link is not None and link.connection is connection:
            self.refused += 1
            if link.in_control:
                self._release(link)

    def round(self) -> None:
        """Request roles that are due, and release switches whose gate has closed. Never waits."""
        for link in list(self._links.values()):
            if link.connection.closed:
                self._on_disconnected(link)
            else:
                self._confirm(link)

    def _confirm(self, link: _SwitchRole) -> None:
        if link.in_control and not link.gate.is_open:
            self._release(link)
            link.requested = None  # the same generation may be confirmed again: this node has not lost it
        self._ask_if_due(link)

    def _release(self, link: _SwitchRole) -> None:
        link.in_control = False
        link.gate.close()
        self.release(link.connection)
        self._wait(link)

    def _wait(self, link: _SwitchRole) -> None:
        """Handle a switch's messages while it is not under control: only role errors matter."""

        def report(kind: int, message: bytes) -> bool:
            if kind == MessageType.ERROR:
                try:
                    error = parse_error(message)
                except ProtocolError:
                    return True
                link.connection.fail(error.xid, SwitchReplyError(error.text))
            return kind == MessageType.ERROR

        link.connection.on_report = report
        link.connection.on_close = lambda: self._on_disconnected(link)

    def _on_disconnected(self, link: _SwitchRole) -> None:
        if self._links.get(link.connection.dpid) is link:
            del self._links[link.connection.dpid]

    def _ask_if_due(self, link: _SwitchRole) -> None:
        desired = self._desired_role(link.connection.dpid)
        if desired is not None and desired != link.requested:  # a refused role is not requested again
            link.requested = desired
            self._spawn(self._ask, link, desired)

    def _ask(self, link: _SwitchRole, desired: Request) -> None:
        """Request a role from a switch; close the connection of a switch that does not confirm it."""
        role, generation = desired
        connection = link.connection
        try:
            body = connection.ask(lambda xid: encode_role_request(xid, role, generation)).wait(ROLE_TIMEOUT_S)
            confirmed = body is not None and decode_role(body) is role
        except SwitchReplyError as error:
            self.refused += 1
            self._complain(link, f"refuses the role {role.name} under generation id {generation}: {error}")
            return
        except ProtocolError as error:
            self._complain(link, f"gave no role: {error}")
            connection.disconnect()
            return
        if not confirmed:
            self._complain(link, f"has not confirmed the role {role.name}; connection closed, waiting for reconnect")
            connection.disconnect()
        elif role is ControllerRole.MASTER and link.requested == desired and not connection.closed:
            link.gate.confirm(generation)
            if not link.gate.is_open:
                link.requested = None
            elif self._links.get(connection.dpid) is link:
                link.in_control = True
                self.control(connection)

    def _complain(self, link: _SwitchRole, text: str) -> None:
        dpid = link.connection.dpid
        if self._log_limiter.due((dpid, text)):
            LOG.warning("switch %016x %s", dpid, text)
