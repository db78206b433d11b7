"""The section ``cluster``: which node this is, and the etcd that it shares with the other one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field

from controller.config.document import Problem
from controller.config.sections import ControlSection, FilePath, Name, Section, StoreSection, Written, read_section
from controller.errors import InvalidValueError
from controller.fabric.description import Cluster, Rest

MOST_ENDPOINTS = 9


def check_url(value: object) -> str:
    """Return ``http://HOST:PORT`` or ``https://HOST:PORT``, without anything else."""
    url = value if isinstance(value, str) else ""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port is not None
    except ValueError:
        right = False
    if not right or url != f"{parts.scheme}://{parts.netloc}" or "@" in url:
        raise InvalidValueError("url", value, "is not http://HOST:PORT or https://HOST:PORT")
    return url


Url = Annotated[str, BeforeValidator(check_url), Written("`http://HOST:PORT` or `https://HOST:PORT`")]


class ClusterSection(Section):
    """``cluster``: two controllers of the same fabric on one etcd; without it there is one, and no etcd."""

    path = "cluster"
    required = ("node", "etcd")
    node: Name | None = None
    """This node; the other one has another name."""
    etcd: Annotated[list[Url], Field(min_length=1, max_length=MOST_ENDPOINTS)] = Field(default_factory=list)
    """Client URLs of etcd's members."""
    name: Name = "dets"
    """The cluster; its keys in etcd begin with /dets/NAME/."""
    lease_ttl_s: Annotated[int, Field(ge=2, le=60)] = 3
    """The active node may be silent for so long before the other one takes over."""
    url: Url | None = None
    """Where clients reach this node's REST interface; by default rest.listen."""
    ca: FilePath | None = None
    """CA file (PEM) of etcd's certificates; by default the system's."""
    certificate: FilePath | None = None
    """File with this node's certificate for etcd (PEM)."""
    key: FilePath | None = None
    """File with the certificate's private key (PEM)."""


def read_cluster(
    data: object, control: ControlSection, store: StoreSection, rest: Rest, source_name: str
) -> tuple[Cluster | None, list[Problem]]:
    """Return the cluster, None if the file has none, and what is wrong with it. Paths are as in ``read_rest``."""
    if data is None:
        return None, []
    section, problems = read_section(ClusterSection, ("cluster",), data)
    problems += _contradictions(section, control, store)

    def path(given: str | None) -> str | None:
        return None if given is None else os.path.join(os.path.dirname(source_name), given)

    scheme = "http" if rest.tls is None else "https"
    cluster = Cluster(
        node=section.node or "",
        name=section.name,
        etcd=tuple(section.etcd),
        lease_ttl_s=section.lease_ttl_s,
        url=section.url or f"{scheme}://{rest.listen}",
        ca=path(section.ca),
        certificate=path(section.certificate),
        key=path(section.key),
    )
    return cluster, problems


def _contradictions(section: ClusterSection, control: ControlSection, store: StoreSection) -> Iterator[Problem]:
    if (section.certificate is None) != (section.key is None):
        there, missing = ("certificate", "key") if section.key is None else ("key", "certificate")
        yield Problem(("cluster", there), f"stands without cluster.{missing}: TLS needs both", at_key=True)
    secure = {url.startswith("https:") for url in section.etcd}
    if secure == {False} and (section.ca or section.certificate):
        yield Problem(("cluster", "etcd"), "has http:// only, and cluster.ca or cluster.certificate is for https://")
    if control.on_stop == "remove":
        yield Problem(("control", "on_stop"), "remove cannot be with cluster: the other node goes on")
    if store.file is not None:
        yield Problem(("store", "file"), "cannot be with cluster: changes are kept in etcd", at_key=True)
