"""The configuration of the REST interface and of the store, and what its keys demand of each other."""

from __future__ import annotations

import ipaddress
import os

from controller.config.document import Document
from controller.config.sections import RestSection, RootSection, StoreSection, read_section
from controller.config.tls import beside_file, read_tls
from controller.fabric.description import Endpoint, Rest

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
