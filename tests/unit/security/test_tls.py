"""The namespace's own authority and certificates, proved by real handshakes in memory."""

from __future__ import annotations

import datetime
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from tandembus.clock import SystemClock
from tandembus.errors import InvalidArgument
from tandembus.security.tls import (
    TlsFiles,
    certificate_names,
    client_context,
    ensure_certificate,
    server_context,
)
from tests.covers import covers

NOW = SystemClock().now()
NAMES = certificate_names("127.0.0.1")
DAY = 86_400.0


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> ssl.SSLObject:
    """Both sides in one thread, over memory; returns the client's side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(to_server, to_client, server_side=True)
    here = client.wrap_bio(to_client, to_server, server_hostname=name)
    for _ in range(10):
        waiting = 0
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                waiting += 1
        if not waiting:
            return here
    raise AssertionError("the handshake does not end")


def serial(files: TlsFiles) -> int:
    return x509.load_pem_x509_certificate(files.cert_path.read_bytes()).serial_number


@covers("M15")
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "::1", "bus.example.com", "192.0.2.7"])
def test_a_client_that_trusts_the_authority_reaches_every_name(tmp_path: Path, name: str) -> None:
    files = ensure_certificate(tmp_path, certificate_names("192.0.2.7", ["Bus.example.com"]), NOW)
    secured = handshake(server_context(files), client_context(files.ca_path), name)
    assert secured.version() == "TLSv1.3"


@covers("M15")
def test_strict_verification_of_certificates_is_satisfied(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    client = client_context(files.ca_path)
    client.verify_flags |= ssl.VERIFY_X509_STRICT
    assert handshake(server_context(files), client, "localhost").version()


@covers("M15")
def test_another_name_and_another_authority_are_refused(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path / "one", NAMES, NOW)
    other = ensure_certificate(tmp_path / "two", NAMES, NOW)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(files), client_context(files.ca_path), "elsewhere.example.com")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(files), client_context(other.ca_path), "localhost")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(server_context(files), client_context(), "localhost")


@covers("M15")
def test_old_protocol_versions_are_refused(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    server = server_context(files)
    assert server.minimum_version is ssl.TLSVersion.TLSv1_2
    client = client_context(files.ca_path)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    assert handshake(server, client, "localhost").version() == "TLSv1.2"


@covers("M15")
def test_a_client_that_offers_http_2_learns_that_it_is_http_1(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    client = client_context(files.ca_path)
    client.set_alpn_protocols(["h2", "http/1.1"])
    assert handshake(server_context(files), client, "localhost").selected_alpn_protocol() == "http/1.1"


@covers("M15")
def test_private_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    ensure_certificate(tmp_path, NAMES, NOW)
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {
        "ca.pem": 0o644,
        "ca.key": 0o600,
        "server.pem": 0o644,
        "server.key": 0o600,
    }
    (tmp_path / "ca.key").chmod(0o644)
    ensure_certificate(tmp_path, NAMES, NOW)
    assert stat.S_IMODE((tmp_path / "ca.key").stat().st_mode) == 0o600


@covers("M15")
def test_a_certificate_is_kept_while_it_serves(tmp_path: Path) -> None:
    first = serial(ensure_certificate(tmp_path, NAMES, NOW))
    assert serial(ensure_certificate(tmp_path, NAMES, NOW + 360 * DAY)) == first
    assert serial(ensure_certificate(tmp_path, list(reversed(NAMES)), NOW)) == first


@covers("M15")
def test_a_certificate_is_renewed_under_the_same_authority_for_new_names_and_near_its_end(
    tmp_path: Path,
) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    assert files.ca_path is not None
    authority = files.ca_path.read_bytes()
    serials = [
        serial(files),
        serial(ensure_certificate(tmp_path, [*NAMES, "bus.example.com"], NOW)),
        serial(ensure_certificate(tmp_path, [*NAMES, "bus.example.com"], NOW + 368 * DAY)),
        serial(ensure_certificate(tmp_path, [*NAMES, "bus.example.com"], NOW - 2 * DAY)),
    ]
    assert len(set(serials)) == 4
    assert files.ca_path.read_bytes() == authority


@covers("M15")
def test_an_authority_near_its_end_is_made_anew_with_its_certificates(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    assert files.ca_path is not None
    authority = files.ca_path.read_bytes()
    late = NOW + 3_630 * DAY
    ensure_certificate(tmp_path, NAMES, late)
    assert files.ca_path.read_bytes() != authority
    certificate = x509.load_pem_x509_certificate(files.cert_path.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(files.ca_path.read_bytes()))


@covers("M15")
def test_a_server_certificate_never_outlives_its_authority(tmp_path: Path) -> None:
    ensure_certificate(tmp_path, NAMES, NOW)
    files = ensure_certificate(tmp_path, NAMES, NOW + 3_600 * DAY)
    assert files.ca_path is not None
    end = x509.load_pem_x509_certificate(files.ca_path.read_bytes()).not_valid_after_utc
    assert x509.load_pem_x509_certificate(files.cert_path.read_bytes()).not_valid_after_utc <= end


@covers("M15")
@pytest.mark.parametrize("broken", ["ca.pem", "ca.key", "server.pem", "server.key"])
@pytest.mark.parametrize("how", ["gone", "empty", "garbage", "of another"])
def test_broken_files_are_made_anew(tmp_path: Path, broken: str, how: str) -> None:
    folder = tmp_path / "tls"
    ensure_certificate(folder, NAMES, NOW)
    path = folder / broken
    if how == "gone":
        path.unlink()
    elif how == "of another":
        ensure_certificate(tmp_path / "other", NAMES, NOW)
        path.write_bytes((tmp_path / "other" / broken).read_bytes())
    else:
        path.write_bytes(b"" if how == "empty" else b"-----BEGIN CERTIFICATE-----\nnonsense\n")
    files = ensure_certificate(folder, NAMES, NOW)
    assert handshake(server_context(files), client_context(files.ca_path), "localhost").version()


@covers("M15")
def test_a_given_certificate_is_used_as_it_is(tmp_path: Path) -> None:
    made = ensure_certificate(tmp_path / "given", NAMES, NOW)
    files = ensure_certificate(tmp_path / "tls", NAMES, NOW, made.cert_path, made.key_path)
    assert files == TlsFiles(None, made.cert_path, made.key_path)
    assert not (tmp_path / "tls").exists()


@covers("M15")
def test_a_given_certificate_that_cannot_be_used_is_refused_by_name(tmp_path: Path) -> None:
    one = ensure_certificate(tmp_path / "one", NAMES, NOW)
    two = ensure_certificate(tmp_path / "two", NAMES, NOW)
    missing = tmp_path / "missing.pem"
    for certificate, key in (
        (one.cert_path, two.key_path),
        (missing, one.key_path),
        (one.key_path, one.key_path),
    ):
        with pytest.raises(InvalidArgument, match=str(certificate)):
            ensure_certificate(tmp_path / "tls", NAMES, NOW, certificate, key)


@covers("M15")
def test_addresses_that_mean_every_interface_are_no_names() -> None:
    assert "0.0.0.0" not in certificate_names("0.0.0.0")
    assert "::" not in certificate_names("::")
    assert certificate_names("localhost").count("localhost") == 1
    assert "bus.example.com" in certificate_names("Bus.Example.Com")
    assert "::2" in certificate_names("[::2]")


def test_certificates_are_valid_for_clocks_that_run_late(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, NAMES, NOW)
    begin = x509.load_pem_x509_certificate(files.cert_path.read_bytes()).not_valid_before_utc
    assert begin <= datetime.datetime.fromtimestamp(NOW - 3_599, datetime.UTC)
