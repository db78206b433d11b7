"""Settings of the listeners, REST's and OpenFlow's: addresses, TLS files, and the store of changes."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable, Iterator

from controller.config.section_reader import read_section
from controller.config.sections import ListenerSection, OvsdbTlsSection, RestSection, StoreSection
from controller.config.value_types import ovsdb_endpoint
from controller.config.yaml_document import Problem
from controller.fabric.config_model import ClientTls, Endpoint, Rest, Switch, Tls

_STORE_SUFFIX = ".db"
_IN_MEMORY = ":memory:"


def read_rest(section: RestSection, store: StoreSection, source_name: str) -> tuple[Rest, list[Problem]]:
    """Return the settings of REST and the store, and their problems.

    Paths are relative to the folder of the configuration file. Without a path the store is next to that file; the store
    of a configuration that is no file is in memory.
    """
    tls, problems = read_tls(section, source_name)
    listen = Endpoint(*section.listen)
    guarded = section.authentication == "token" or section.client_ca is not None
    if not (guarded or section.has_bad("listen") or section.has_bad("authentication") or _is_loopback(listen.host)):
        message = f"{listen} can be reached from other machines: set rest.authentication to token, or rest.client_ca"
        problems.append(Problem(("rest", "listen"), message))
    default = os.path.splitext(source_name)[0] + _STORE_SUFFIX if os.path.isfile(source_name) else _IN_MEMORY
    rest = Rest(
        listen=listen,
        authentication=section.authentication,
        if_match=section.if_match,
        ui=section.ui,
        requests_per_s=section.requests_per_s,
        max_connections=section.max_connections,
        trusted_proxies=tuple(section.trusted_proxies),
        tls=tls,
        store=default if store.file is None else _from_folder_of(source_name, store.file),
    )
    return rest, problems


def read_tls(section: ListenerSection, source_name: str) -> tuple[Tls | None, list[Problem]]:
    """Return the TLS files of a section, None without any, and their problems."""
    problems = list(_incomplete_tls(section))
    if section.certificate is None or section.key is None:
        return None, problems
    client_ca = None if section.client_ca is None else _from_folder_of(source_name, section.client_ca)
    certificate, key = (_from_folder_of(source_name, path) for path in (section.certificate, section.key))
    return Tls(certificate, key, client_ca), problems


def read_ovsdb_tls(data: object, source_name: str) -> tuple[ClientTls | None, list[Problem]]:
    """Return the TLS files for OVSDB, None without any, and their problems."""
    if data is None:
        return None, []
    section, problems = read_section(OvsdbTlsSection, ("ovsdb_tls",), data)
    problems += _incomplete_pair(section)
    files = (section.ca, section.certificate, section.key)
    ca, certificate, key = (None if path is None else _from_folder_of(source_name, path) for path in files)
    return ClientTls(ca or "", certificate, key), problems


def ovsdb_problems(switches: Iterable[Switch], tls: ClientTls | None, used: dict[Endpoint, str]) -> Iterator[Problem]:
    """Yield the problems of listening addresses for databases.

    ``used`` are the addresses of other listeners, by key.
    """
    for switch in switches:
        endpoint = None if switch.ovsdb is None else ovsdb_endpoint(switch.ovsdb)
        if switch.ovsdb is None or endpoint is None:
            continue
        path, scheme = ("switches", switch.name, "ovsdb"), switch.ovsdb.partition(":")[0]
        if scheme == "pssl" and (tls is None or tls.certificate is None):
            yield Problem(path, "pssl needs ovsdb_tls with ca, certificate and key")
        other = used.setdefault(Endpoint(*endpoint), scheme)
        if other != scheme:
            yield Problem(path, f"{Endpoint(*endpoint)} is also {other}")


def _incomplete_tls(section: ListenerSection) -> Iterator[Problem]:
    name = section.path
    yield from _incomplete_pair(section)
    if section.client_ca is not None and section.certificate is None:
        yield Problem((name, "client_ca"), f"is set without {name}.certificate: it is for TLS", at_key=True)


def _incomplete_pair(section: ListenerSection | OvsdbTlsSection) -> Iterator[Problem]:
    name = section.path
    if (section.certificate is None) != (section.key is None):
        there, missing = ("certificate", "key") if section.key is None else ("key", "certificate")
        yield Problem((name, there), f"is set without {name}.{missing}: TLS needs both", at_key=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_folder_of(source_name: str, path: str) -> str:
    return path if path == _IN_MEMORY else os.path.join(os.path.dirname(source_name), path)
