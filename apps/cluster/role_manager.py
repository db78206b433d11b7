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

    ``control`` takes a switch under control after this node has become its master, ``release`` gives the switch up.
    ``desired`` returns the role to request from a switch now, or None. ``held`` returns the generation under which this
    node may change a switch, or None. ``spawn`` calls a function in a greenlet of its own.
    """

    def __init__(
        self,
        desired: Callable[[int], Request | None],
        held: Callable[[int], int | None],
        now_s: Callable[[], float],
        spawn: Callable[..., object],
    ) -> None:
        self._desired_role, self._write_generation, self._spawn = desired, held, spawn
        self.control: Callable[[SwitchConnection], None] = lambda connection: None
        self.release: Callable[[SwitchConnection], None] = lambda connection: None
        self._roles: dict[int, _SwitchRole] = {}
        self._log_limiter = LogRateLimiter(now_s)
        self.refused = 0

    def connection(self, dpid: int) -> SwitchConnection | None:
        """Return the connection of a switch, under control or not; None if there is none."""
        role_state = self._roles.get(dpid)
        return None if role_state is None or role_state.connection.closed else role_state.connection

    def reached(self) -> set[int]:
        """Return the switches that are connected, under control or not."""
        return {dpid for dpid, role_state in self._roles.items() if not role_state.connection.closed}

    def on_connected(self, connection: SwitchConnection) -> None:
        """Handle a new connection of a configured switch."""
        gate = connection.gate
        assert isinstance(gate, WriteGate)
        gate.held = partial(self._write_generation, connection.dpid)
        before = self._roles.get(connection.dpid)
        role_state = self._roles[connection.dpid] = _SwitchRole(connection, gate)
        if before is not None:
            before.connection.disconnect(EvictionReason.REPLACED)
        connection.keep()
        self._ignore_all_but_errors(role_state)
        if connection.closed:
            self._on_disconnected(role_state)
        else:
            self._request_if_due(role_state)

    def on_demoted(self, connection: SwitchConnection) -> None:
        """Handle a switch that rejects this node as a slave: another node has a newer generation id."""
        role_state = self._roles.get(connection.dpid)
        if role_state is not None and role_state.connection is connection:
            self.refused += 1
            if role_state.in_control:
                self._release(role_state)

    def round(self) -> None:
        """Request roles that are due, and release switches whose gate has closed. Never waits."""
        for role_state in list(self._roles.values()):
            if role_state.connection.closed:
                self._on_disconnected(role_state)
            else:
                self._update(role_state)

    def _update(self, role_state: _SwitchRole) -> None:
        """Release a switch whose gate has closed, and request its role if that is due."""
        if role_state.in_control and not role_state.gate.is_open:
            self._release(role_state)
            role_state.requested = None  # the same generation may be confirmed again: this node has not lost it
        self._request_if_due(role_state)

    def _release(self, role_state: _SwitchRole) -> None:
        """Take a switch from the controller; its connection stays."""
        role_state.in_control = False
        role_state.gate.close()
        self.release(role_state.connection)
        self._ignore_all_but_errors(role_state)

    def _ignore_all_but_errors(self, role_state: _SwitchRole) -> None:
        """Let only errors, which reject role requests, have an effect while a switch is not under control."""

        def report(kind: int, message: bytes) -> bool:
            """Fail the request that an error rejects; return whether the message was an error."""
            if kind == MessageType.ERROR:
                try:
                    error = parse_error(message)
                except ProtocolError:
                    return True
                role_state.connection.fail(error.xid, SwitchReplyError(error.text))
            return kind == MessageType.ERROR

        role_state.connection.on_report = report
        role_state.connection.on_close = lambda: self._on_disconnected(role_state)

    def _on_disconnected(self, role_state: _SwitchRole) -> None:
        """Forget a closed connection, unless the switch has a newer one."""
        if self._roles.get(role_state.connection.dpid) is role_state:
            del self._roles[role_state.connection.dpid]

    def _request_if_due(self, role_state: _SwitchRole) -> None:
        """Request the desired role of a switch in a greenlet, unless it was the last one requested."""
        desired = self._desired_role(role_state.connection.dpid)
        if desired is not None and desired != role_state.requested:  # a refused role is not requested again
            role_state.requested = desired
            self._spawn(self._request, role_state, desired)

    def _request(self, role_state: _SwitchRole, desired: Request) -> None:
        """Request a role from a switch, and take the switch under control if it confirms the role of master.

        The connection of a switch that neither confirms nor rejects the role is closed.
        """
        role, generation = desired
        connection = role_state.connection
        try:
            body = connection.ask(lambda xid: encode_role_request(xid, role, generation)).wait(ROLE_TIMEOUT_S)
            confirmed = body is not None and decode_role(body) is role
        except SwitchReplyError as error:
            self.refused += 1
            self._warn(role_state, f"refuses the role {role.name} under generation id {generation}: {error}")
            return
        except ProtocolError as error:
            self._warn(role_state, f"gave no role: {error}")
            connection.disconnect()
            return
        if not confirmed:
            self._warn(role_state, f"has not confirmed the role {role.name}; connection closed, waiting for reconnect")
            connection.disconnect()
        elif role is ControllerRole.MASTER and role_state.requested == desired and not connection.closed:
            role_state.gate.confirm(generation)
            if not role_state.gate.is_open:
                role_state.requested = None
            elif self._roles.get(connection.dpid) is role_state:
                role_state.in_control = True
                self.control(connection)

    def _warn(self, role_state: _SwitchRole, text: str) -> None:
        """Log a warning about a switch, repeated ones rarely."""
        dpid = role_state.connection.dpid
        if self._log_limiter.due((dpid, text)):
            LOG.warning("switch %016x %s", dpid, text)
