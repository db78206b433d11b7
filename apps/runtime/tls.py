"""TLS: contexts for listening sockets and clients, from the files that the configuration names."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from controller.errors import InvalidValueError
from controller.fabric.config_model import Tls

MAX_FILE_BYTES = 4 << 20  # a system's authorities have some 200 kB


class RenewableContext:
    """A context with files that may be replaced: connections after a renewal use the new ones.

    ``key`` is the section of the configuration that names the files, ``make`` reads them.
    """

    def __init__(self, key: str, files: Mapping[str, str | None], make: Callable[[], ssl.SSLContext]) -> None:
        self.key, self._files, self._make = key, files, make
        self._digests = _read(key, files)
        self.current = make()

    def prepare(self) -> Callable[[], None] | None:
        """Return a function that applies the present files to new connections, None if no file has changed.

        Raises InvalidValueError, naming the file, for unusable files.
        """
        digests = _read(self.key, self._files)
        return None if digests == self._digests else partial(self._renew, digests, self._make())

    def _renew(self, digests: list[bytes], context: ssl.SSLContext) -> None:
        self._digests, self.current = digests, context


def renewable_server(key: str, tls: Tls | None) -> RenewableContext | None:
    """Return the context of a listener, None without TLS.

    The listener presents the certificate of ``tls``. If ``tls`` names a CA, clients must present a certificate of that
    CA. Raises InvalidValueError for unusable files; ``key`` is the section of the configuration that names them.
    """
    if tls is None:
        return None
    files = {"certificate": tls.certificate, "key": tls.key, "client_ca": tls.client_ca}
    return RenewableContext(key, files, partial(_server_context, key, tls))


def _server_context(key: str, tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _present(context, key, tls.certificate, tls.key)
    if tls.client_ca is not None:
        _trust(context, f"{key}.client_ca", tls.client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def renewable_client(
    key: str, ca: str | None, certificate: str | None, private_key: str | None, *, check_hostname: bool = True
) -> RenewableContext:
    """Return the context of a client, which presents ``certificate`` if there is one.

    Servers must present a certificate of ``ca``, or of one of the system's authorities if ``ca`` is None. Raises
    InvalidValueError as ``renewable_server`` does.
    """

    def make() -> ssl.SSLContext:
        context = ssl.create_default_context() if ca is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if ca is not None:
            _trust(context, f"{key}.ca", ca)
        context.check_hostname = check_hostname
        if certificate is not None and private_key is not None:
            _present(context, key, certificate, private_key)
        return context

    return RenewableContext(key, {"ca": ca, "certificate": certificate, "key": private_key}, make)


def _present(context: ssl.SSLContext, key: str, certificate: str, private_key: str) -> None:
    """Let a context present a certificate; raise InvalidValueError if the files do not fit each other."""
    try:
        context.load_cert_chain(certificate, private_key, password=_refuse_password)
    except (ssl.SSLError, _EncryptedKeyError) as error:
        reason = f"is no certificate whose key is {private_key}: {error}"
        raise InvalidValueError(f"{key}.certificate", certificate, reason) from error


def _trust(context: ssl.SSLContext, key: str, ca: str) -> None:
    """Let a context trust the authorities in a file; raise InvalidValueError if the file has none."""
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError as error:
        raise InvalidValueError(key, ca, f"holds no certificate: {error}") from error


class TlsConnection:
    """A TLS connection whose reading ends like that of a plain socket, with ``b""``.

    Ryu would mistake an ssl.SSLError for a timeout, and retry for ever. After ``shutdown`` received bytes would no
    longer be decrypted, so they are discarded.
    """

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def recv(self, size: int) -> bytes:
        """Return received bytes, ``b""`` after the end; TimeoutError as a plain socket."""
        try:
            data = b"" if self._ended else self._connection.recv(size)
        except (ssl.SSLError, ValueError):
            return b""
        return b"" if self._ended else data  # another greenlet may have called ``shutdown`` in the meantime

    def sendall(self, data: bytes) -> None:
        """Send all bytes, without copying the rest for each TLS record of at most 16 KiB."""
        self._connection.sendall(memoryview(data))

    def shutdown(self, how: int) -> None:
        """End the connection in the given direction, and for reading in any case."""
        self._ended = True
        self._connection.shutdown(how)


class _EncryptedKeyError(Exception):
    """The key is protected by a password, which is not available."""


def _refuse_password() -> str:
    raise _EncryptedKeyError("the key is encrypted; a service needs one that is not")


def _read(key: str, files: Mapping[str, str | None]) -> list[bytes]:
    """Return the SHA-256 of each file; raise InvalidValueError for an unreadable or too long file."""
    digests = []
    for name, path in files.items():
        if path is None:
            continue
        try:
            with open(path, "rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise InvalidValueError(f"{key}.{name}", path, f"cannot be read: {error.strerror}") from error
        if len(content) > MAX_FILE_BYTES:
            raise InvalidValueError(f"{key}.{name}", path, f"is longer than {MAX_FILE_BYTES} bytes")
        digests.append(hashlib.sha256(content).digest())
    return digests
