"""Settings, keys and certificates."""

from __future__ import annotations

import difflib
import shlex
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from cryptography import x509

from tandembus.cli.diagnosis.finding import Area, Finding
from tandembus.cli.output import counted
from tandembus.cli.target import CONNECTION_STRING_VARIABLE
from tandembus.config import ENVIRONMENT_PREFIX, LIMITS_PREFIX, ServeSettings
from tandembus.errors import InvalidArgument
from tandembus.node.run_folder import INSTALL_KEY_FILE
from tandembus.security.key_file import KEY_FILE
from tandembus.security.tls import RENEW_BEFORE, TlsFiles, server_context

AREA: Final = Area("configuration")
_LIKENESS: Final = 0.68
_TABLES: Final = ("limits", "policies")
"""Settings that no variable can hold as a whole."""


def examine(
    settings: ServeSettings, config: Path | None, environment: Mapping[str, str], now: float
) -> Iterator[Finding]:
    yield from _environment(environment)
    yield from _modes(settings, config if _holds_secrets(settings, environment) else None)
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
    return {ENVIRONMENT_PREFIX + one.name.upper() for one in fields(ServeSettings) if one.name not in _TABLES}


def _environment(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Names that mean nothing are left alone by `serve`: here those are told that look like a slip."""
    known = {name.removeprefix(ENVIRONMENT_PREFIX) for name in (*_known(), CONNECTION_STRING_VARIABLE)}
    for variable in sorted(environment):
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name == variable or name in known or variable.startswith(LIMITS_PREFIX):
            continue
        # Without the prefix, which makes all alike: container platforms set TANDEMBUS_PORT, and mean no host.
        alike = difflib.get_close_matches(name.upper(), known, 1, _LIKENESS)
        if name.lower() in _TABLES:
            yield AREA.warning("environment", f"{variable} means nothing", "Put it into a file, as a table: --config.")
        elif alike:
            yield AREA.warning("environment", f"{variable} means nothing", f"Is {ENVIRONMENT_PREFIX}{alike[0]} meant?")


def _holds_secrets(settings: ServeSettings, environment: Mapping[str, str]) -> bool:
    """Whether the file does: what a variable says does not come from it."""
    secrets = {"KEY": settings.key, "PARTNER": settings.partner}
    given = [name for name, secret in secrets.items() if secret is not None]
    return bool(settings.policies) or any(ENVIRONMENT_PREFIX + name not in environment for name in given)


def _modes(settings: ServeSettings, config: Path | None) -> Iterator[Finding]:
    """`config`: only where it holds secrets."""
    own = [settings.data / name for name in (KEY_FILE, INSTALL_KEY_FILE, "tls/ca.key", "tls/server.key")]
    given = [path for path in (settings.tls_private_key, config) if path is not None]
    there = [path for path in (*own, *given) if path.is_file()]
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in there}
    for path, mode in modes.items():
        if mode & 0o077:
            yield _open_key(path, mode)
    if settings.data.is_dir() and stat.S_IMODE(settings.data.stat().st_mode) & 0o077:
        advice = f"`chmod 700 {shlex.quote(str(settings.data))}`"
        yield AREA.warning("data folder", f"{settings.data} is open to others", advice)
    if there and not any(mode & 0o077 for mode in modes.values()):
        yield AREA.ok("keys", f"{counted(len(there), 'file')}, open to the owner only")


def _open_key(path: Path, mode: int) -> Finding:
    chmod = f"`chmod 600 {shlex.quote(str(path))}`"
    if mode & 0o007:
        advice = f"{chmod}, and make new keys if others may have read them."
        return AREA.problem("keys", f"{path} can be read by others (mode {mode:o})", advice)
    # Keys of web servers are often shared like this on purpose.
    return AREA.warning("keys", f"{path} is open to its group (mode {mode:o})", f"{chmod}, unless that is meant.")


def _certificates(settings: ServeSettings, now: datetime) -> Iterator[Finding]:
    if settings.tls_certificate is not None and settings.tls_private_key is not None:
        yield from _given(settings.tls_certificate, settings.tls_private_key, now)
        return
    advice = "A restart of the namespace makes a new one"
    own = {
        "authority": ("ca.pem", f"{advice}, and clients have to be told of it."),
        "certificate": ("server.pem", f"{advice}."),
    }
    for name, (file, what_to_do) in own.items():
        path = settings.data / "tls" / file
        if path.is_file():
            yield _valid(name, path, now, what_to_do)
        else:
            yield AREA.ok(name, "none yet: the first start makes one")


def _given(certificate: Path, key: Path, now: datetime) -> Iterator[Finding]:
    try:
        if b"ENCRYPTED" in key.read_bytes():  # OpenSSL would ask for the passphrase, here and at every start
            advice = f"Keep it without one: `openssl pkey -in {shlex.quote(str(key))}` prints it so."
            yield AREA.problem("certificate", f"{key} has a passphrase, and nobody gives it at a start", advice)
            return
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
    # A certificate for a week is renewed by a program, and is no reason to worry all the time.
    if ends - now < min(RENEW_BEFORE, (ends - begins) / 4):
        return AREA.warning(name, text, advice)
    return AREA.ok(name, text)
