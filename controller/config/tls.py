"""The files that a listener's TLS needs, and what their keys demand of each other."""

from __future__ import annotations

import os

from controller.config.document import Document
from controller.config.sections import ListenerSection
from controller.fabric.description import Tls


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
