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

    Relative paths begin at the folder of the configuration file, ``source_name``. By default the store is next to that
    file, or in memory for a configuration that is not a file.
    """
    tls, problems = read_tls(section, source_name)
    listen = Endpoint(*section.listen)
    is_open = section.authentication != "token" and section.client_ca is None
    if is_open and not (section.has_bad("listen") or section.has_bad("authentication") or _is_loopback(listen.host)):
        message = f"{listen} can be reached from other machines: set rest.authentication to token, or rest.client_ca"
        problems.append(Problem(("rest", "listen"), message))
    default_store = os.path.splitext(source_name)[0] + _STORE_SUFFIX if os.path.isfile(source_name) else _IN_MEMORY
    rest = Rest(
        listen=listen,
        authentication=section.authentication,
        if_match=section.if_match,
        ui=section.ui,
        requests_per_s=section.requests_per_s,
        max_connections=section.max_connections,
        trusted_proxies=tuple(section.trusted_proxies),
        tls=tls,
        store=default_store if store.file is None else _from_folder_of(source_name, store.file),
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
    problems += incomplete_pair(section.path, section.certificate, section.key)
    files = (section.ca, section.certificate, section.key)
    ca, certificate, key = (None if path is None else _from_folder_of(source_name, path) for path in files)
    return ClientTls(ca or "", certificate, key), problems


def ovsdb_problems(switches: Iterable[Switch], tls: ClientTls | None, used: dict[Endpoint, str]) -> Iterator[Problem]:
    """Yield the problems of the addresses at which this end listens for the switches' databases.

    ``used`` has the addresses of other listeners and their keys in the file; the databases' addresses and their schemes
    are added. Several switches may share an address with one scheme.
    """
    for switch in switches:
        endpoint = None if switch.ovsdb is None else ovsdb_endpoint(switch.ovsdb)
        if switch.ovsdb is None or endpoint is None:
            continue
        path, scheme = ("switches", switch.name, "ovsdb"), switch.ovsdb.partition(":")[0]
        if scheme == "pssl" and (tls is None or tls.certificate is None):
            yield Problem(path, "pssl needs ovsdb_tls with ca, certificate and key")
        first_use = used.setdefault(Endpoint(*endpoint), scheme)
        if first_use != scheme:
            yield Problem(path, f"{Endpoint(*endpoint)} is also {first_use}")


def _incomplete_tls(section: ListenerSection) -> Iterator[Problem]:
    """Yield the problems of TLS files of a listener that need another file."""
    name = section.path
    yield from incomplete_pair(name, section.certificate, section.key)
    if section.client_ca is not None and section.certificate is None:
        yield Problem((name, "client_ca"), f"is set without {name}.certificate: it is for TLS", at_key=True)


def incomplete_pair(section: str, certificate: str | None, key: str | None) -> Iterator[Problem]:
    """Yield the problem of the section of this name if it has a certificate file without a key file, or the reverse."""
    if (certificate is None) != (key is None):
        present, missing = ("certificate", "key") if key is None else ("key", "certificate")
        yield Problem((section, present), f"is set without {section}.{missing}: TLS needs both", at_key=True)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _from_folder_of(source_name: str, path: str) -> str:
    """Return a path relative to the folder of the configuration file as one that can be opened."""
    return path if path == _IN_MEMORY else os.path.join(os.path.dirname(source_name), path)
