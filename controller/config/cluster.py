"""The section ``cluster``: the name of this node, and the etcd that all nodes share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from controller.config.listeners import incomplete_pair
from controller.config.section_reader import read_section
from controller.config.sections import ControlSection, Section, StoreSection
from controller.config.value_types import FilePath, Listen, Name, SyntaxHint, of_room
from controller.config.yaml_document import Problem
from controller.errors import InvalidValueError
from controller.fabric.config_model import Cluster, Endpoint, Rest

MAX_ENDPOINTS = 9


def check_url(value: object) -> str:
    """Return ``http://HOST:PORT`` or ``https://HOST:PORT``, without anything else."""
    url = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        is_complete = False
    if not is_complete or url != f"{parts.scheme}://{parts.netloc}" or "@" in url:
        raise InvalidValueError("url", value, "is not http://HOST:PORT or https://HOST:PORT")
    return url


Url = Annotated[str, BeforeValidator(check_url), SyntaxHint("`http://HOST:PORT` or `https://HOST:PORT`")]


class ClusterSection(Section):
    """``cluster``: several controllers of one fabric on one etcd; without it there is one controller and no etcd."""

    path = "cluster"
    renamed: ClassVar = {"share": "mode", "url": "rest_advertise", "listen": "peer_listen", "address": "peer_advertise"}
    required = ("node", "etcd")
    node: Annotated[Name, of_room("cluster", "")] | None = None
    """Name of this node; unique within the cluster."""
    etcd: Annotated[list[Url], Field(min_length=1, max_length=MAX_ENDPOINTS)] = Field(default_factory=list)
    """Client URLs of etcd's members."""
    name: Name = "dets"
    """The cluster; its keys in etcd begin with /dets/NAME/."""
    lease_ttl_s: Annotated[int, Field(ge=2, le=60)] = 3
    """Lease of a node, seconds: other nodes take over when the node has not renewed it for this long."""
    rest_advertise: Url | None = None
    """URL at which clients and other nodes reach this node's REST interface; by default that of rest.listen."""
    mode: Literal["active-standby", "sharded"] = "active-standby"
    """`active-standby`: one node controls all switches, another one waits. `sharded`: each switch has an owner among \
all nodes; not with the algorithm fe, and only with queues at every edge port."""
    peer_listen: Listen | None = None
    """Sharded mode: address on which this node accepts encrypted connections of other nodes."""
    peer_advertise: Listen | None = None
    """Sharded mode: address at which other nodes reach `peer_listen`; by default `peer_listen` itself."""
    ca: FilePath | None = None
    """CA file (PEM) of etcd's certificates; by default the system's."""
    certificate: FilePath | None = None
    """File with this node's certificate for etcd (PEM)."""
    key: FilePath | None = None
    """File with the certificate's private key (PEM)."""


def read_cluster(
    data: object, control: ControlSection, store: StoreSection, rest: Rest, source_name: str
) -> tuple[Cluster | None, list[Problem]]:
    """Return the cluster, None if the file has none, and its problems.

    Relative paths begin at the folder of the configuration file, ``source_name``.
    """
    if data is None:
        return None, []
    section, problems = read_section(ClusterSection, ("cluster",), data)
    problems += _contradictions(section, control, store, rest)

    def path(relative_path: str | None) -> str | None:
        return None if relative_path is None else os.path.join(os.path.dirname(source_name), relative_path)

    listen, address = section.peer_listen, section.peer_advertise or section.peer_listen
    scheme = "http" if rest.tls is None else "https"
    cluster = Cluster(
        node=section.node or "",
        name=section.name,
        etcd=tuple(section.etcd),
        lease_ttl_s=section.lease_ttl_s,
        rest_advertise=section.rest_advertise or f"{scheme}://{rest.listen}",
        ca=path(section.ca),
        certificate=path(section.certificate),
        key=path(section.key),
        mode=section.mode,
        peer_listen=None if listen is None else Endpoint(*listen),
        peer_advertise=None if address is None else Endpoint(*address),
    )
    return cluster, problems


def _contradictions(
    section: ClusterSection, control: ControlSection, store: StoreSection, rest: Rest
) -> Iterator[Problem]:
    """Yield the problems of cluster keys that exclude or need each other, or conflict with other sections."""
    yield from incomplete_pair("cluster", section.certificate, section.key)
    for index, url in enumerate(section.etcd):
        if url in section.etcd[:index]:
            yield Problem(("cluster", "etcd", f"[{index}]"), f"{url!r} is listed twice: name each member once")
    if section.rest_advertise is None and not section.has_bad("rest_advertise") and _is_wildcard(rest.listen.host):
        yield Problem(("rest", "listen"), f"{rest.listen} is every address: other nodes need cluster.rest_advertise")
    uses_plain_http_only = {url.startswith("https:") for url in section.etcd} == {False}
    if uses_plain_http_only and (section.ca or section.certificate):
        yield Problem(("cluster", "etcd"), "has http:// only, and cluster.ca or cluster.certificate is for https://")
    if not section.has_bad("mode"):
        if section.mode == "sharded" and section.peer_listen is None and not section.has_bad("peer_listen"):
            yield Problem(("cluster", "mode"), "sharded needs cluster.peer_listen, which the other nodes connect to")
        for key in ("peer_listen", "peer_advertise"):
            if section.mode == "active-standby" and getattr(section, key) is not None:
                yield Problem(("cluster", key), "is set without cluster.mode: sharded", at_key=True)
    for key in ("peer_listen", "peer_advertise"):
        address = getattr(section, key)
        if address is not None and not section.has_bad(key):
            yield from _peer_host_problems(key, address[0], has_advertise=section.peer_advertise is not None)
    if control.on_stop == "remove":
        yield Problem(("control", "on_stop"), "remove is not possible with cluster: the other node continues")
    if store.file is not None:
        yield Problem(("store", "file"), "is not possible with cluster: changes are stored in etcd", at_key=True)


def _is_wildcard(host: str) -> bool:
    """Return whether a host is the address of all interfaces, 0.0.0.0 or ::."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def _peer_host_problems(key: str, host: str, *, has_advertise: bool) -> Iterator[Problem]:
    """Yield the problems of a host. ``key`` is the setting that has it: ``peer_listen`` or ``peer_advertise``.

    ``has_advertise``: the file sets ``peer_advertise``, so that other nodes do not use ``peer_listen``.
    """
    try:
        ip_address(host)
    except ValueError:
        yield Problem(("cluster", key), f"{host} is not an IP address: names take time to look up")
        return
    if "%" in host:
        yield Problem(("cluster", key), f"{host} is an address of one link: other nodes need one that they reach")
    if _is_wildcard(host) and (key == "peer_advertise" or not has_advertise):
        yield Problem(("cluster", key), f"{host} is every address: other nodes need cluster.peer_advertise")
