"""The adapter to the framework, Ryu 4.34 (docs/adr/0001): its applications, hub, listener and options.

All other modules use a base class for the application, a hub to spawn and sleep with, and ``SwitchConnection``, which
sends bytes and collects replies. The other modules that use Ryu are launcher.py and those of one connection
(``connection``).
"""

from __future__ import annotations

import errno
import logging
import resource
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import eventlet
from eventlet import tpool
from ryu import cfg
from ryu.base import app_manager
from ryu.controller import controller, ofp_event
from ryu.controller.handler import MAIN_DISPATCHER, set_ev_cls
from ryu.lib import hub
from ryu.ofproto import ofproto_v1_3

from apps.runtime.connection.connection_limits import ConnectionLimits, EvictionReason
from apps.runtime.connection.ryu_datapath import READER, PeerDatapath, serve_peer
from apps.runtime.connection.switch_connection import Reply, SwitchConnection, send_bulk_request
from apps.runtime.logs import LogFormat, set_format, set_level
from apps.runtime.port_holder import port_holder
from apps.runtime.retrying_listener import RetryingListener, listening_address
from apps.runtime.tls import RenewableContext, TlsConnection
from apps.runtime.tls_handshake import do_handshake
from controller.errors import InvalidValueError

__all__ = [
    "BULK_BARRIER",
    "BULK_METER_STATS",
    "OFP_VERSION",
    "AppBase",
    "PeerDatapath",
    "Reply",
    "SwitchConnection",
    "check_free",
    "configured_file",
    "hub",
    "listen_on",
    "on_hangup",
    "other_wsgi_apps",
    "run_in_thread",
    "send_bulk_request",
    "set_log",
]

LOG = logging.getLogger("dets.framework")
HANDSHAKE_TIMEOUT_S = 10.0
# Calls a blocking function in a thread while the hub continues. The hub makes dozens of system calls in a round, and
# after each waits this long for a thread that runs Python: with 5 ms, the default, a round would be too long.
run_in_thread = tpool.execute
sys.setswitchinterval(0.0005)
OFP_VERSION = ofproto_v1_3.OFP_VERSION
# The bulk requests of this process.
BULK_METER_STATS, BULK_BARRIER = READER.meters, READER.barriers
CONNECTIONS_PER_S = 200.0
MAX_WAITING, MAX_WAITING_OF_HOST = 128, 64  # connections without a handshake
MAX_FILES = 65_536
_RawSocket = eventlet.patcher.original("socket").socket


class AppBase(app_manager.RyuApp):  # type: ignore[misc]  # Ryu has no types
    """An application that is notified of every switch that completed its handshake."""

    def switch_connected(self, connection: SwitchConnection) -> None:
        """Handle a newly connected switch."""
        raise NotImplementedError

    @set_ev_cls(ofp_event.EventOFPStateChange, MAIN_DISPATCHER)  # type: ignore[untyped-decorator]
    def _introduced(self, event: Any) -> None:
        if event.datapath.connection is not None:
            self.switch_connected(event.datapath.connection)


def configured_file() -> str | None:
    """Return the configuration file on the command line, if any."""
    name: str | None = getattr(cfg.CONF, "dets_config", None)
    return name


def set_log(log_format: LogFormat, level: str) -> None:
    """Set the log's format and level, unless the framework's command line sets them."""
    conf = cfg.CONF
    if conf.log_config_file is None:
        set_format(log_format)
    if conf.log_config_file is None and conf.default_log_level is None and not conf.verbose:
        set_level(level)


def on_hangup(work: Callable[[], None]) -> None:
    """Do ``work``, in its own greenlet, whenever the process gets SIGHUP."""
    signal.signal(signal.SIGHUP, lambda _number, _frame: eventlet.spawn_n(work))


def listen_on(
    host: str,
    port: int,
    tls: RenewableContext | None = None,
    reserved_files: int = 0,
    wait: Callable[[], None] = lambda: None,
) -> None:
    """Let the framework listen for switches at this address, with TLS if there is a context, and log it.

    ``wait`` returns when it is the caller's turn for a step of a TLS handshake. Options on Ryu's own command line take
    precedence. Connections of switches leave ``reserved_files`` file descriptors of the process unused, but at most
    half of all. Raises InvalidValueError if the address cannot be listened on: the framework itself would continue
    without a listener.
    """
    key = "openflow.listen"
    for name, value in (("ofp_listen_host", host), ("ofp_tcp_listen_port", port)):
        source = cfg.CONF.get_location(name)
        if source is None or not source.location.is_user_controlled:
            cfg.CONF.set_override(name, value)
        elif getattr(cfg.CONF, name) != value:
            key = f"--{name.replace('_', '-')}"
            LOG.warning("%s %s takes precedence over openflow.listen: %s:%s", key, getattr(cfg.CONF, name), host, port)
    check_free(key, cfg.CONF.ofp_listen_host, cfg.CONF.ofp_tcp_listen_port)
    LOG.info("listens for switches at %s:%s", cfg.CONF.ofp_listen_host, cfg.CONF.ofp_tcp_listen_port)
    files = _raise_file_limit()
    max_connections = files - min(reserved_files, files // 2)
    in_handshake = min(MAX_WAITING, max_connections // 2)
    per_host = min(MAX_WAITING_OF_HOST, in_handshake)
    limits: ConnectionLimits[_IncomingConnection] = ConnectionLimits(max_connections, in_handshake, per_host)
    controller.StreamServer = partial(_Server, limits, tls, wait)
    # For connections that the framework itself opens (ofp-switch-address-list).
    controller.datapath_connection_factory = lambda sock, address: serve_peer(PeerDatapath(sock, address))


def _raise_file_limit() -> int:
    """Raise the process's limit of file descriptors to MAX_FILES, or as far as allowed; return the limit.

    A higher limit stays; no limit counts as MAX_FILES.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    return max(soft, target) if soft != resource.RLIM_INFINITY else MAX_FILES


def other_wsgi_apps() -> tuple[str, list[str]] | None:
    """Return (address, names) of the other Ryu applications that serve HTTP, without authentication; None without."""
    applications = app_manager.AppManager.get_instance().applications
    served = [name for name, app in applications.items() if "wsgi" in app._CONTEXTS]
    return (f"{cfg.CONF.wsapi_host}:{cfg.CONF.wsapi_port}", sorted(served)) if served else None


class _Server(hub.StreamServer):  # type: ignore[misc]
    """Accepts switches as long as the process lives: Ryu's own server ends when accepting a connection fails.

    Connections are accepted no faster than CONNECTIONS_PER_S, and ``limits`` decides which stay. With ``tls`` they use
    TLS; Ryu's own server supports certificates for its first connection only. Ryu gives the last two arguments; its
    handler of connections is not used.
    """

    def __init__(
        self,
        limits: ConnectionLimits[_IncomingConnection],
        tls: RenewableContext | None,
        wait: Callable[[], None],
        address: tuple[str, int],
        _handle: Callable[..., None],
    ) -> None:
        family, bound = listening_address(*address)
        self.server = RetryingListener(eventlet.listen(bound, family), "OpenFlow", hub.sleep)
        self._limits, self._tls, self._wait = limits, tls, wait

    def serve_forever(self) -> None:
        """Accept connections for ever, each served by its own greenlet."""
        while True:
            plain, address = self.server.accept()
            incoming = _IncomingConnection(plain, address)
            for evicted in list(self._limits.admit(incoming, address[0])):
                evicted.cut_off(EvictionReason.CROWDED)
            if incoming.ended:  # it was itself evicted
                plain.close()
            else:
                hub.spawn(self._serve, incoming)
            hub.sleep(1.0 / CONNECTIONS_PER_S)

    def _serve(self, incoming: _IncomingConnection) -> None:
        """Serve one incoming connection: TLS, handshake within HANDSHAKE_TIMEOUT_S, then messages."""
        handshake_timer = hub.spawn_after(HANDSHAKE_TIMEOUT_S, incoming.cut_off, EvictionReason.LATE)

        def introduced() -> None:
            handshake_timer.cancel()
            self._limits.on_handshake_done(incoming)

        try:
            sock = incoming.plain if self._tls is None else self._encrypted(incoming, self._tls.current)
            if sock is not None:
                datapath = incoming.datapath = PeerDatapath(sock, incoming.address)
                datapath.on_introduced, datapath.on_keep = introduced, lambda: self._limits.mark_controlled(incoming)
                serve_peer(datapath)
        except OSError:  # disconnected before any message
            pass
        finally:
            handshake_timer.cancel()
            self._limits.leave(incoming)
            incoming.plain.close()

    def _encrypted(self, incoming: _IncomingConnection, context: ssl.SSLContext) -> TlsConnection | None:
        """Do the TLS handshake; return the encrypted connection, or None if the handshake fails.

        During the handshake ``incoming.cut_off`` may close the socket below it.
        """
        try:
            connection = context.wrap_socket(incoming.plain, server_side=True, do_handshake_on_connect=False)
            incoming.plain = connection
            do_handshake(connection, HANDSHAKE_TIMEOUT_S, self._wait)
        except OSError as error:  # including ssl.SSLError and time-outs
            if PeerDatapath.log_limiter.due(("TLS", incoming.address[0])):
                LOG.warning("TLS handshake with %s failed: %s", incoming.address, error)
            return None
        connection.settimeout(None)
        return TlsConnection(connection)


class _IncomingConnection:
    """A connection from the moment it is accepted: its socket, and later the object that serves it."""

    def __init__(self, plain: Any, address: Any) -> None:
        self.plain, self.address = plain, address
        self.datapath: PeerDatapath | None = None
        self.ended = False

    def cut_off(self, reason: EvictionReason) -> None:
        """Close the connection, in the TLS handshake too, and count the reason."""
        self.ended = True
        if self.datapath is not None:
            self.datapath.evict(reason)
            return
        PeerDatapath.counts.cut_off[reason] += 1
        with suppress(OSError):  # below TLS, whose state belongs to the running handshake
            raw = _RawSocket(fileno=self.plain.fileno())
            try:
                raw.shutdown(socket.SHUT_RDWR)
            finally:
                raw.detach()  # the descriptor still belongs to ``plain``


def check_free(key: str, host: str, port: int) -> None:
    """Raise InvalidValueError, naming ``key`` and the holder of the port, if a TCP endpoint cannot be listened on."""
    try:
        family, address = listening_address(host, port)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen()
    except OSError as error:
        reason = f"cannot be listened on: {error.strerror}"
        if error.errno == errno.EADDRINUSE:
            reason += f" by {port_holder(host, port)}; stop that, or set another {key}"
        raise InvalidValueError(key, f"{host}:{port}", reason) from error
