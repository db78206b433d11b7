"""A certificate authority for the lab: certificates for the controller, for switches and for clients of REST.

Keys use the curve P-256, which all TLS libraries support. No file is overwritten.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import os
import re
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from controller.errors import InvalidValueError

MAX_DAYS = 36_500
MAX_HOST_LENGTH = 253
_HOST_NAME = re.compile(
    r"(\*\.)?[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*", re.I | re.A
)
_CLOCK_SKEW = dt.timedelta(hours=1)  # a switch's clock may be slightly late


def create_authority(folder: Path, name: str, days: int) -> list[Path]:
    """Create ``ca.pem`` and ``ca.key`` in ``folder`` and return them; InvalidValueError if they exist."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _subject("name", name)
    usage = _key_usage(key_cert_sign=True, crl_sign=True)
    builder = _builder(subject, subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(usage, critical=True)
    return _write(folder, "ca", builder.sign(key, hashes.SHA256()), key)


def issue(folder: Path, name: str, days: int, hosts: Sequence[str] | None, *, client: bool = False) -> list[Path]:
    """Create ``NAME.pem`` and ``NAME.key``, signed by the CA in ``folder``, and return them.

    ``hosts`` are the names and addresses of a server; None makes a client's certificate, which switches use as well.
    With ``client`` a server's certificate is also valid for a client. Raises InvalidValueError if there is no CA, or
    files of that name exist.
    """
    authority, authority_key = _authority(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_subject("NAME", name), authority.subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(digital_signature=True), critical=True)
    purposes = [] if hosts is None else [ExtendedKeyUsageOID.SERVER_AUTH]
    purposes += [ExtendedKeyUsageOID.CLIENT_AUTH] if hosts is None or client else []
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    if hosts is not None:
        names = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    return _write(folder, name, builder.sign(authority_key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    """Return a builder of a certificate that is valid for ``days`` from now, without extensions for its use."""
    if not 1 <= days <= MAX_DAYS:
        raise InvalidValueError("days", days, f"must be 1 to {MAX_DAYS}")
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=public_key)
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - _CLOCK_SKEW).not_valid_after(now + dt.timedelta(days=days))
    return builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)


def _subject(key: str, name: str) -> x509.Name:
    """Return a subject with a common name; raise InvalidValueError, naming ``key``, for an impossible one."""
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise InvalidValueError(key, name, f"cannot be a certificate's name: {error}") from error


def _key_usage(**allowed: bool) -> x509.KeyUsage:
    """Return the extension that allows these uses of a key, and no others."""
    uses = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement key_cert_sign crl_sign "
        "encipher_only decipher_only"
    )
    return x509.KeyUsage(**{use: allowed.get(use, False) for use in uses.split()})


def _general_name(host: str) -> x509.GeneralName:
    """Return an IP address or a host name for a certificate. Raises InvalidValueError."""
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(host))
    if len(host) > MAX_HOST_LENGTH or not _HOST_NAME.fullmatch(host):
        raise InvalidValueError("host", host, "is neither an IP address nor a name, such as controller.example")
    return x509.DNSName(host)


def _authority(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """Return the certificate and the key of the CA in a folder; InvalidValueError if there is none usable."""
    try:
        certificate = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
    except OSError as error:
        raise InvalidValueError(
            "folder", str(folder), f"holds no CA ({error.strerror}); make one with dets cert ca"
        ) from error
    except (ValueError, TypeError) as error:
        raise InvalidValueError("folder", str(folder), f"holds a CA that cannot be used: {error}") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InvalidValueError("folder", str(folder), "holds the CA of another tool, whose key is of another kind")
    return certificate, key


def _write(folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> list[Path]:
    """Write a certificate, and its key for its owner alone; InvalidValueError if a file exists."""
    if not name or Path(name).name != name:
        raise InvalidValueError("NAME", name, "cannot be the name of a file")
    paths = [folder / f"{name}.pem", folder / f"{name}.key"]
    folder.mkdir(parents=True, exist_ok=True)
    for path in paths:
        if path.exists():
            raise InvalidValueError("folder", str(folder), f"holds {path.name} already; remove it to make a new one")
    plain = serialization.NoEncryption()
    contents = [
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain),
    ]
    for path, content, mode in zip(paths, contents, (0o644, 0o600), strict=True):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    return paths
