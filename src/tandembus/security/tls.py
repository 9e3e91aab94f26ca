"""TLS for a namespace: its own certificate authority in the data folder, or a certificate that was given.

The authority lives ten years, so that clients need to be told of it once; the server's certificate is
short-lived and made anew, on start, when it nears its end or has to name another host.
"""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tandembus.durability import make_folder
from tandembus.errors import InvalidArgument
from tandembus.security.key_file import write_private

CA_LIFETIME: Final = datetime.timedelta(days=3_650)
SERVER_LIFETIME: Final = datetime.timedelta(days=397)
"""Some clients refuse a server certificate that lives longer."""
RENEW_BEFORE: Final = datetime.timedelta(days=30)
CA_BACKDATED: Final = datetime.timedelta(days=30)
"""A clock set back for a day must not cost the authority that clients were told to trust."""
SERVER_BACKDATED: Final = datetime.timedelta(hours=1)
"""Client clocks run late."""
MAX_COMMON_NAME: Final = 64
_ALWAYS: Final = ("localhost", "127.0.0.1", "::1")
_TLS12_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Where the parts are. `ca_path` is None for a given certificate: its issuer is the giver's business."""

    ca_path: Path | None
    cert_path: Path
    key_path: Path


def certificate_names(host: str, further: Sequence[str] = ()) -> tuple[str, ...]:
    """What a client on this machine or in its network may call it; an address that means 'all' is none."""
    names = [*_ALWAYS, socket.gethostname(), host, *further]
    return tuple(dict.fromkeys(name.lower().strip("[]") for name in names if _can_be_named(name)))


def ensure_certificate(
    folder: Path,
    names: Sequence[str],
    now: float,
    given_certificate: Path | None = None,
    given_key: Path | None = None,
) -> TlsFiles:
    """The given certificate, checked, or one of our own for `names` in `folder`, made or renewed where
    needed."""
    if given_certificate is not None and given_key is not None:
        return _checked_given(given_certificate, given_key)
    at = datetime.datetime.fromtimestamp(now, datetime.UTC)
    make_folder(folder)
    files = TlsFiles(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    ca_path, ca_key_path = folder / "ca.pem", folder / "ca.key"
    authority = _load_pair(ca_path, ca_key_path)
    if authority is None or _is_ending(authority[0], at):
        authority = _make_authority(at)
        _write_pair(ca_path, ca_key_path, *authority)
    server = _load_pair(files.cert_path, files.key_path)
    if server is None or not _still_serves(server[0], authority[0], names, at):
        _write_pair(files.cert_path, files.key_path, *_make_server(authority, names, at))
    _close_to_others(ca_key_path, files.key_path)
    return files


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS 1.2 and later, forward secrecy only. Loading the chain also proves that the key belongs to it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_TLS12_CIPHERS)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
    # One port speaks AMQP and HTTP/1.1: a client that offers HTTP/2 must learn that it is not to be had.
    context.set_alpn_protocols(["http/1.1", "amqp"])
    context.load_cert_chain(files.cert_path, files.key_path)
    return context


def client_context(ca_path: Path | None = None) -> ssl.SSLContext:
    """For a client that trusts this authority, or without one the system's."""
    context = ssl.create_default_context(cafile=str(ca_path) if ca_path is not None else None)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


_Pair = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def _can_be_named(name: str) -> bool:
    try:
        return not ipaddress.ip_address(name.strip("[]")).is_unspecified
    except ValueError:
        return bool(name) and name.isascii() and len(name) <= 253 and not any(c in name for c in " /:*\0")


def _checked_given(certificate: Path, key: Path) -> TlsFiles:
    files = TlsFiles(None, certificate, key)
    try:
        server_context(files)
    except (OSError, ssl.SSLError) as error:
        reason = error.strerror or getattr(error, "reason", None) or str(error)
        raise InvalidArgument(
            f"The TLS certificate {certificate} and private key {key} cannot be used together: {reason}."
        ) from None
    return files


def _load_pair(certificate_path: Path, key_path: Path) -> _Pair | None:
    """What is there and fits together; anything else is as good as nothing and is made anew."""
    try:
        certificate = x509.load_pem_x509_certificate(certificate_path.read_bytes())
        key = serialization.load_pem_private_key(key_path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificate.public_key() != key.public_key():
        return None
    return certificate, key


def _write_pair(
    certificate_path: Path, key_path: Path, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    write_private(key_path, private)
    write_private(certificate_path, certificate.public_bytes(pem), mode=0o644)


def _close_to_others(*paths: Path) -> None:
    for path in paths:
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)


def _is_ending(certificate: x509.Certificate, at: datetime.datetime) -> bool:
    return at < certificate.not_valid_before_utc or at > certificate.not_valid_after_utc - RENEW_BEFORE


def _still_serves(
    certificate: x509.Certificate, authority: x509.Certificate, names: Sequence[str], at: datetime.datetime
) -> bool:
    if _is_ending(certificate, at):
        return False
    try:
        certificate.verify_directly_issued_by(authority)
        alternatives = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return False
    return set(alternatives) == set(_general_names(names))


def _make_authority(at: datetime.datetime) -> _Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    # The serial in the name keeps two authorities of one machine apart in a trust store.
    serial = x509.random_serial_number()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tandembus authority {serial:x}"[:MAX_COMMON_NAME])])
    builder = (
        _builder(name, name, key.public_key(), serial, at - CA_BACKDATED, at + CA_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
    )
    return builder.sign(key, hashes.SHA256()), key


def _make_server(authority: _Pair, names: Sequence[str], at: datetime.datetime) -> _Pair:
    issuer, issuer_key = authority
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:MAX_COMMON_NAME])])
    public = key.public_key()
    ends_at = min(at + SERVER_LIFETIME, issuer.not_valid_after_utc)
    serial = x509.random_serial_number()
    builder = (
        _builder(subject, issuer.subject, public, serial, at - SERVER_BACKDATED, ends_at)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_general_names(names)), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    return builder.sign(issuer_key, hashes.SHA256()), key


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public: ec.EllipticCurvePublicKey,
    serial: int,
    begins_at: datetime.datetime,
    ends_at: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(serial)
        .not_valid_before(begins_at)
        .not_valid_after(ends_at)
    )


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _general_names(names: Sequence[str]) -> list[x509.GeneralName]:
    general: list[x509.GeneralName] = []
    for name in names:
        try:
            general.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            general.append(x509.DNSName(name))
    return general
