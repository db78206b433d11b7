"""What the listeners need, REST's and OpenFlow's: addresses, TLS files, and where changes are stored."""

from __future__ import annotations

import ipaddress
import os

from controller.config.document import Document
from controller.config.sections import ListenerSection, RestSection, RootSection, StoreSection, read_section
from controller.fabric.description import Endpoint, Rest, Tls

_STORE_SUFFIX = ".db"
_IN_MEMORY = ":memory:"


def read_rest(document: Document, root: RootSection, source_name: str) -> Rest:
    """Return how REST is served and where changes are kept; what is wrong is reported.

    Paths are relative to the folder of the configuration file. Without a path the store stands beside that file; a
    configuration that is no file is kept in memory.
    """
    section = read_section(RestSection, document, ("rest",), root.rest)
    store = read_section(StoreSection, document, ("store",), root.store)
    listen = Endpoint(*section.listen)
    guarded = section.authentication == "token" or section.client_ca is not None
    if not (guarded or section.has_bad("listen") or section.has_bad("authentication") or _is_loopback(listen.host)):
        message = f"{listen} can be reached from other machines: set rest.authentication to token, or rest.client_ca"
        document.report(("rest", "listen"), message)

    beside = os.path.splitext(source_name)[0] + _STORE_SUFFIX if os.path.isfile(source_name) else _IN_MEMORY
    return Rest(
        listen=listen,
        authentication=section.authentication,
        if_match=section.if_match,
        requests_per_s=section.requests_per_s,
        max_connections=section.max_connections,
        tls=read_tls(document, section, source_name),
        store=beside if store.file is None else beside_file(source_name, store.file),
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_tls(document: Document, section: ListenerSection, source_name: str) -> Tls | None:
    """Return what a section says of TLS, or None if it says nothing; what is wrong is reported."""
    name = section.path
    if (section.certificate is None) != (section.key is None):
        there, missing = ("certificate", "key") if section.key is None else ("key", "certificate")
        document.report((name, there), f"stands without {name}.{missing}: TLS needs both", at_key=True)
    if section.client_ca is not None and section.certificate is None:
        document.report((name, "client_ca"), f"stands without {name}.certificate: it is for TLS", at_key=True)
    if section.certificate is None or section.key is None:
        return None
    client_ca = None if section.client_ca is None else beside_file(source_name, section.client_ca)
    certificate, key = (beside_file(source_name, path) for path in (section.certificate, section.key))
    return Tls(certificate, key, client_ca)


def beside_file(source_name: str, path: str) -> str:
    """Return a path of the configuration, which is relative to the folder of its file."""
    return path if path == ":memory:" else os.path.join(os.path.dirname(source_name), path)
