"""TLS as a server: what the configuration names, made into a context for a listening socket."""

from __future__ import annotations

import ssl
from typing import Any

from controller.errors import InvalidValueError
from controller.fabric.description import Tls


def server_context(key: str, tls: Tls) -> ssl.SSLContext:
    """Return a context that shows ``tls``' certificate and, if it names a CA, asks clients for one of that CA.

    ``key`` is where the configuration says so, for the message of the InvalidValueError that unusable files raise.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    for name in ("certificate", "key", "client_ca"):
        _check_readable(f"{key}.{name}", getattr(tls, name))
    try:
        context.load_cert_chain(tls.certificate, tls.key, password=_refuse_password)
    except (ssl.SSLError, _EncryptedKeyError) as error:
        raise InvalidValueError(
            key, f"{tls.certificate} with {tls.key}", f"is no certificate and its key: {error}"
        ) from error
    if tls.client_ca is not None:
        try:
            context.load_verify_locations(tls.client_ca)
        except ssl.SSLError as error:
            raise InvalidValueError(f"{key}.client_ca", tls.client_ca, f"holds no certificate: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsConnection:
    """A TLS connection whose end looks like that of a plain one.

    Readers of plain sockets take ssl.SSLError for a time-out and try again for ever; and what is read after
    ``shutdown`` is no longer deciphered.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        """Return what has come, ``b""`` after the end; TimeoutError as a plain socket."""
        try:
            data = b"" if self._ended else self._connection.recv(size)
        except (ssl.SSLError, ValueError):
            return b""
        return b"" if self._ended else data

    def sendall(self, data: bytes) -> None:
        """Send all; a TLS record takes 16 KiB at most, and the rest is not copied for each."""
        self._connection.sendall(memoryview(data))

    def shutdown(self, how: int) -> None:
        """End the connection in the given direction, for reading in any case."""
        self._ended = True
        self._connection.shutdown(how)


class _EncryptedKeyError(Exception):
    """The key is protected by a password, and nobody is there to give it."""


def _refuse_password() -> str:
    raise _EncryptedKeyError("the key is encrypted; a service needs one that is not")


def _check_readable(key: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise InvalidValueError(key, path, f"cannot be read: {error.strerror}") from error
