"""Settings, keys and certificates."""

from __future__ import annotations

import difflib
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from cryptography import x509

from tandembus.cli.diagnosis.finding import Area, Finding
from tandembus.cli.target import CONNECTION_STRING_VARIABLE
from tandembus.config import ENVIRONMENT_PREFIX, LIMITS_PREFIX, ServeSettings
from tandembus.errors import InvalidArgument
from tandembus.node.run_folder import INSTALL_KEY_FILE
from tandembus.security.key_file import KEY_FILE
from tandembus.security.tls import RENEW_BEFORE, TlsFiles, server_context

AREA: Final = Area("configuration")
_LIKENESS: Final = 0.8


def examine(
    settings: ServeSettings, config: Path | None, environment: Mapping[str, str], now: float
) -> Iterator[Finding]:
    yield from _environment(environment)
    yield from _modes(settings, config)
    yield from _certificates(settings, datetime.fromtimestamp(now, timezone.utc))


def usable(config: Path | None, environment: Mapping[str, str]) -> Finding:
    return AREA.ok("settings", _sources(config, environment))


def unusable(error: Exception) -> Finding:
    """The settings cannot be read: the rest is looked at by the defaults."""
    return AREA.problem("settings", str(error), "Correct it: docs/configuration.md lists all settings.")


def _sources(config: Path | None, environment: Mapping[str, str]) -> str:
    given = sorted(name for name in environment if name in _known() or name.startswith(LIMITS_PREFIX))
    parts = [f"the file {config}"] if config is not None else []
    return "from " + ", ".join([*parts, *given]) if parts or given else "defaults and flags"


def _known() -> set[str]:
    return {ENVIRONMENT_PREFIX + one.name.upper() for one in fields(ServeSettings)}


def _environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Names that mean nothing are left alone by `serve`: here those are told that look like a slip."""
    known = {*_known(), CONNECTION_STRING_VARIABLE}
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX) and not name.startswith(LIMITS_PREFIX) and name not in known:
            alike = difflib.get_close_matches(name, known, 1, _LIKENESS)
            if alike:
                yield AREA.warning("environment", f"{name} means nothing", f"Is {alike[0]} meant?")


def _modes(settings: ServeSettings, config: Path | None) -> Iterator[Finding]:
    own = [settings.data / name for name in (KEY_FILE, INSTALL_KEY_FILE, "tls/ca.key", "tls/server.key")]
    secrets = [*own, *([settings.tls_private_key] if settings.tls_private_key else [])]
    if config is not None and (settings.key is not None or settings.policies):
        secrets.append(config)
    there = [path for path in secrets if path.is_file()]
    open_ones = [path for path in there if stat.S_IMODE(path.stat().st_mode) & 0o077]
    for path in open_ones:
        text = f"{path} can be read by others (mode {stat.S_IMODE(path.stat().st_mode):o})"
        yield AREA.problem("keys", text, f"`chmod 600 {path}`, and make new keys if others may have read them.")
    if settings.data.is_dir() and stat.S_IMODE(settings.data.stat().st_mode) & 0o077:
        yield AREA.warning("data folder", f"{settings.data} is open to others", f"`chmod 700 {settings.data}`")
    if there and not open_ones:
        yield AREA.ok("keys", f"{len(there)} files, readable by their owner only")


def _certificates(settings: ServeSettings, now: datetime) -> Iterator[Finding]:
    if settings.tls_certificate is not None and settings.tls_private_key is not None:
        yield from _given(settings.tls_certificate, settings.tls_private_key, now)
        return
    paths = {"authority": settings.data / "tls" / "ca.pem", "certificate": settings.data / "tls" / "server.pem"}
    for name, path in paths.items():
        if path.is_file():
            yield _valid(name, path, now, "A restart of the namespace makes a new one.")
        else:
            yield AREA.ok(name, "none yet: the first start makes one")


def _given(certificate: Path, key: Path, now: datetime) -> Iterator[Finding]:
    try:
        server_context(TlsFiles(None, certificate, key))
    except (OSError, InvalidArgument) as error:
        text = f"{certificate} and {key} cannot be used together: {error}"
        yield AREA.problem("certificate", text, "Give the certificate and the key that belongs to it.")
    else:
        yield _valid("certificate", certificate, now, "Put a new one in its place, and restart the namespace.")


def _valid(name: str, path: Path, now: datetime, advice: str) -> Finding:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        return AREA.problem(name, f"{path} is no certificate: {error}", advice)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    text = f"valid until {ends:%Y-%m-%d}"
    if now < begins or now >= ends:
        return AREA.problem(name, f"{path} is not valid now, but from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}", advice)
    if ends - now < min(RENEW_BEFORE, timedelta(days=30)):
        return AREA.warning(name, text, advice)
    return AREA.ok(name, text)
