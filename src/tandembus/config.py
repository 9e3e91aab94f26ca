"""Settings of `tandembus serve`: defaults < configuration file < environment < flags.

Read and checked once, at the edge; everything behind gets frozen values of the right type. A mistake is
answered with where it stands, what it is, and what would be allowed there.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import math
import re
import sys
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tandembus.limits import Limits, setting

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = [
    "EMULATOR_KEY",
    "ConfigurationError",
    "Limits",
    "PolicySetting",
    "ServeSettings",
    "emulator_limits",
    "is_loopback",
    "load_settings",
    "settings_document",
    "settings_from_document",
]

ENVIRONMENT_PREFIX: Final = "TANDEMBUS_"
LIMITS_PREFIX: Final = ENVIRONMENT_PREFIX + "LIMITS_"
MAX_FILE_BYTES: Final = 1024 * 1024
RIGHTS: Final = ("Send", "Listen", "Manage")
EMULATOR_KEY: Final = "SAS_KEY_VALUE"
"""The key in everybody's connection strings for the official emulator."""
EMULATOR_DUPLICATE_WINDOW_S: Final = 5.0
"""The emulator's least, which is less than the service's."""
_PARTNER: Final = frozenset(["partner", "partner_data"])
LOG_LEVELS: Final = ("debug", "info", "warning", "error")
_OFF: Final = ("off", "none", "")
_BOOLEANS: Final = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}
_NAMESPACE_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?", re.ASCII)
_POLICY_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,256}", re.ASCII)
_KEY: Final = re.compile(r"[!-:<-~]{1,256}", re.ASCII)
"""Printable, without space and semicolon: it must survive in a connection string."""


class ConfigurationError(ValueError):
    """A setting that cannot be used. No client ever sees this: it ends the start."""


@dataclass(frozen=True, slots=True)
class PolicySetting:
    """A SAS policy of the namespace beside the root policy."""

    name: str = setting("", "what clients give as SharedAccessKeyName")
    key: str = setting("", "its key", is_secret=True)
    secondary_key: str | None = setting(None, "a second key that is valid as well", is_secret=True)
    rights: tuple[str, ...] = setting((), "which of Send, Listen, Manage it grants", choices=RIGHTS)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """All that `serve` needs to know."""

    name: str = setting("tandembus", "name of the namespace")
    data: Path = setting(Path("tandembus-data"), "folder that holds everything durable")  # noqa: RUF009
    host: str = setting("127.0.0.1", "network address to listen on")
    amqp_port: int = setting(5672, "customary port of AMQP; 0 = any free one", minimum=0, maximum=65_535)
    amqps_port: int | None = setting(
        5671, "customary port of AMQP over TLS; 0 = any free one, off = none", minimum=0, maximum=65_535
    )
    http_port: int = setting(5300, "customary port of HTTP; 0 = any free one", minimum=0, maximum=65_535)
    key: str | None = setting(
        None,
        "key of RootManageSharedAccessKey; without it a random one is kept in the data folder",
        is_secret=True,
    )
    brokers: int = setting(0, "message broker processes; 0 = everything in one process", minimum=0, maximum=64)
    stores: int | None = setting(
        None,
        "messaging stores for new entities; none = one per message broker; all that exist are served in any case",
        minimum=1,
        maximum=256,
    )
    front_ends: int = setting(1, "front-end processes that share the ports", minimum=1, maximum=64)
    spare_brokers: int = setting(
        1, "processes kept loaded, to take the place of a message broker that ended", minimum=0, maximum=16
    )
    restart_delay_s: float = setting(
        0.0, "a message broker or front end that ended is started again after this", minimum=0.0, maximum=3_600.0
    )
    heartbeat_timeout_s: float = setting(
        5.0, "a message broker or front end that is silent for so long is killed and started again", minimum=0.5
    )
    audit: bool = setting(
        False, "record every message that is accepted and what becomes of it, in files under DATA/audit"
    )
    reservations: bool = setting(True, "offer reservations on management nodes, which other services do not know")
    open_metrics: bool = setting(False, "let anybody who reaches the HTTP port read the metrics, without a token")
    tracing: bool = setting(False, "make spans of OpenTelemetry of messages whose senders ask for it")
    log_level: str = setting("info", "what is logged", choices=LOG_LEVELS)
    log_format: str = setting(
        "auto", "how: for people, as JSON lines, or auto: for people on a terminal", choices=("auto", "human", "json")
    )
    tls_certificate: Path | None = setting(None, "certificate (PEM) to use instead of a generated one")  # noqa: RUF009
    tls_private_key: Path | None = setting(None, "private key (PEM) of that certificate")  # noqa: RUF009
    tls_names: tuple[str, ...] = setting((), "further host names and addresses for the generated certificate")
    accept_any_jwt: bool = setting(
        False, "accept JSON web tokens without checking who signed them; only on a loopback address"
    )
    emulator_config: Path | None = setting(  # noqa: RUF009
        None, "Config.json of the Service Bus emulator, whose entities are created at the start"
    )
    partner: str | None = setting(
        None,
        "connection string of the other namespace of a pair, whose state is shown beside this one's",
        is_secret=True,
    )
    partner_data: Path | None = setting(None, "its data folder instead, where it is on this machine")  # noqa: RUF009
    partner_ca: Path | None = setting(  # noqa: RUF009
        None, "certificates (PEM) by which its TLS is trusted, where the system's own do not do"
    )
    stop_timeout_s: float = setting(10.0, "how long a graceful stop may take", minimum=0.0)
    policies: tuple[PolicySetting, ...] = setting((), "further SAS policies, as [[policies]] tables")
    limits: Limits = setting(Limits(), "limits, as a [limits] table")  # noqa: RUF009

    def __post_init__(self) -> None:
        _check(
            _NAMESPACE_NAME.fullmatch(self.name),
            "name",
            "letters, digits, '.' and '-' (at most 64) are allowed",
        )
        _check(self.host.strip() == self.host and self.host, "host", "a host name or network address is needed")
        _check_key("key", self.key)
        for policy in self.policies:
            _check_policy(policy)
        names = [policy.name.lower() for policy in self.policies]
        _check(len(set(names)) == len(names), "policies", "two policies have the same name")
        _check(
            (self.tls_certificate is None) == (self.tls_private_key is None),
            "tls_certificate",
            "tls_certificate and tls_private_key are only of use together",
        )
        _check(
            not self.accept_any_jwt or is_loopback(self.host),
            "accept_any_jwt",
            f"it would let everybody in who reaches {self.host}; it is allowed on a loopback address only",
        )
        _check(
            self.partner is None or self.partner_data is None,
            "partner",
            "the other namespace is found by its connection string or by its data folder, not by both",
        )
        _check(
            self.front_ends == 1 or self.brokers > 0,
            "front_ends",
            f"{self.front_ends} front ends need message brokers in processes of their own: brokers must be 1 or more",
        )
        _check_limits(self.limits)

    @property
    def accepts_emulator_key(self) -> bool:
        """Everybody knows that key: it is worth something only where nobody else can come from."""
        return self.emulator_config is not None and is_loopback(self.host)


def emulator_limits(limits: Limits) -> Limits:
    """What the emulator's files may ask for is allowed with them."""
    shortest_s = min(limits.min_duplicate_window_s, EMULATOR_DUPLICATE_WINDOW_S)
    return dataclasses.replace(limits, min_duplicate_window_s=shortest_s)


def is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def load_settings(
    config_file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> ServeSettings:
    """The settings in force. Flags that are None were not given; 'off' is how a flag says none."""
    values: dict[str, object] = {}
    limits: dict[str, object] = {}
    for source in (
        _from_file(config_file) if config_file is not None else _Source("", {}, {}),
        _from_environment(environment or {}),
        _Source("flag --", {name: value for name, value in (flags or {}).items() if value is not None}, {}),
    ):
        given = _converted(ServeSettings, source.values, source.origin)
        if not given.keys().isdisjoint(_PARTNER):  # two ways to say the same: the last one that is said counts
            values = {name: value for name, value in values.items() if name not in _PARTNER}
        values.update(given)
        limits.update(_converted(Limits, source.limits, source.origin + source.limits_infix))
    if values.get("emulator_config") is not None:
        limits.setdefault("min_duplicate_window_s", EMULATOR_DUPLICATE_WINDOW_S)
    try:
        return ServeSettings(**{**values, "limits": Limits(**limits)})  # type: ignore[arg-type]
    except ConfigurationError as error:
        where = f"{config_file}: " if config_file is not None else ""
        raise ConfigurationError(f"{where}{error}") from None


def settings_document(settings: ServeSettings) -> dict[str, object]:
    """As plain data, for another process of the same namespace. It holds keys: never for a command line or a log."""
    return dataclasses.asdict(settings, dict_factory=_plain_fields)


def settings_from_document(document: Mapping[str, object]) -> ServeSettings:
    """The other way round."""
    values = dict(document)
    limits = values.pop("limits")
    assert isinstance(limits, Mapping)
    origin = "handed-over settings: "
    converted = _converted(ServeSettings, values, origin)
    return ServeSettings(**converted, limits=Limits(**_converted(Limits, limits, origin)))  # type: ignore[arg-type]


def _plain_fields(fields: list[tuple[str, object]]) -> dict[str, object]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in fields}


@dataclass(frozen=True, slots=True)
class _Source:
    """Values as they stand in one place; `origin` goes in front of a key when it is complained about."""

    origin: str
    values: Mapping[str, object]
    limits: Mapping[str, object]
    limits_infix: str = ""


def _from_file(path: Path) -> _Source:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path}: larger than {MAX_FILE_BYTES} bytes, so hardly a configuration file")
    if raw.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{") or path.suffix.lower() == ".json":
        # Only the emulator's file is JSON. It holds entities, which are read where entities are known.
        return _Source(f"{path}: ", {"emulator_config": path}, {})
    try:
        document: dict[str, object] = tomllib.loads(raw.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigurationError(f"{path}: not a TOML file: {error}") from None
    limits = document.pop("limits", {})
    if not isinstance(limits, dict):
        raise ConfigurationError(f"{path}: limits: expected a [limits] table")
    return _Source(f"{path}: ", document, limits, "limits.")


def _from_environment(environment: Mapping[str, str]) -> _Source:
    """Unknown TANDEMBUS_* names are left alone: container platforms make some up, such as TANDEMBUS_PORT."""
    known = {ENVIRONMENT_PREFIX + name.upper(): name for name in _field_names(ServeSettings) if _is_plain(name)}
    values = {name: environment[variable] for variable, name in known.items() if variable in environment}
    limits = {
        variable.removeprefix(LIMITS_PREFIX).lower(): text
        for variable, text in environment.items()
        if variable.startswith(LIMITS_PREFIX)
    }
    return _Source("environment variable TANDEMBUS_", values, limits, "LIMITS_")


def _is_plain(name: str) -> bool:
    return name not in ("limits", "policies")


def _field_names(owner: type) -> list[str]:
    return [one.name for one in dataclasses.fields(owner)]


def _converted(owner: type, values: Mapping[str, object], origin: str) -> dict[str, object]:
    fields = {one.name: one for one in dataclasses.fields(owner)}
    hints = typing.get_type_hints(owner)
    converted: dict[str, object] = {}
    for name, value in values.items():
        where = origin + _as_written(name, origin)
        if name not in fields:
            raise ConfigurationError(f"{where}: no such setting; there are {', '.join(sorted(fields))}")
        converted[name] = _convert(value, hints[name], fields[name].metadata, where)
    return converted


def _as_written(name: str, origin: str) -> str:
    if origin.startswith("environment"):
        return name.upper()
    return name.removesuffix("_s").replace("_", "-") if origin.startswith("flag") else name


def _convert(value: object, hint: object, metadata: Mapping[str, object], where: str) -> object:
    """One value from a file (typed), the environment (text) or a flag (either) as the field's own type."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        if value is None or value is False or (isinstance(value, str) and value.lower() in _OFF):
            return None
        hint = next(one for one in typing.get_args(hint) if one is not type(None))
    if typing.get_origin(hint) is tuple:
        items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
        if not isinstance(items, Sequence):
            raise ConfigurationError(f"{where}: {_shown(value, metadata)} is not a list")
        inner = typing.get_args(hint)[0]
        return tuple(_convert(item, inner, metadata, f"{where}[{at}]") for at, item in enumerate(items))
    if hint is PolicySetting:
        if not isinstance(value, Mapping):
            raise ConfigurationError(f"{where}: expected a [[policies]] table")
        return PolicySetting(**_converted(PolicySetting, value, f"{where}."))  # type: ignore[arg-type]
    return _checked(_scalar(value, hint, metadata, where), metadata, where)


def _scalar(value: object, hint: object, metadata: Mapping[str, object], where: str) -> object:
    shown = _shown(value, metadata)
    if hint is bool:
        known = value if isinstance(value, bool) else _BOOLEANS.get(value.lower()) if isinstance(value, str) else None
        if known is None:
            raise ConfigurationError(f"{where}: {shown} is neither true nor false")
        return known
    if hint is int or hint is float:
        return _number(value, hint is int, shown, where)
    if isinstance(value, Path) and hint is Path:
        return value
    if not isinstance(value, str):
        raise ConfigurationError(f"{where}: {shown} is not text")
    return Path(value) if hint is Path else value


def _number(value: object, is_whole: bool, shown: str, where: str) -> object:
    wanted = "a whole number" if is_whole else "a number"
    try:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ValueError
        number = int(value) if is_whole and not isinstance(value, float) else float(value)
    except (ValueError, OverflowError):
        raise ConfigurationError(f"{where}: {shown} is not {wanted}") from None
    if (is_whole and isinstance(number, float)) or not math.isfinite(number):
        raise ConfigurationError(f"{where}: {shown} is not {wanted}")
    return number


def _checked(value: object, metadata: Mapping[str, object], where: str) -> object:
    choices = metadata["choices"]
    if isinstance(choices, tuple) and choices:
        for choice in choices:
            if isinstance(value, str) and value.lower() == choice.lower():
                return choice
        raise ConfigurationError(f"{where}: {value!r} is not one of {', '.join(choices)}")
    minimum, maximum = metadata["minimum"], metadata["maximum"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if isinstance(minimum, (int, float)) and value < minimum:
            raise ConfigurationError(f"{where}: {value} is below the least allowed value, {minimum}")
        if isinstance(maximum, (int, float)) and value > maximum:
            raise ConfigurationError(f"{where}: {value} is above the largest allowed value, {maximum}")
    return value


def _shown(value: object, metadata: Mapping[str, object]) -> str:
    return "the value" if metadata["is_secret"] else repr(value)[:80]


def _check(is_right: object, name: str, problem: str) -> None:
    if not is_right:
        raise ConfigurationError(f"{name}: {problem}")


def _check_key(name: str, key: str | None) -> None:
    _check(
        key is None or _KEY.fullmatch(key),
        name,
        "a key has 1 to 256 printable characters, no space and no semicolon",
    )


def _check_policy(policy: PolicySetting) -> None:
    name = f"policies.{policy.name}"
    _check(
        _POLICY_NAME.fullmatch(policy.name),
        "policies.name",
        "1 to 256 letters, digits, '.', '_' and '-' are needed",
    )
    _check_key(f"{name}.key", policy.key)
    _check_key(f"{name}.secondary_key", policy.secondary_key)
    _check(policy.rights, f"{name}.rights", f"at least one of {', '.join(RIGHTS)} is needed")


def _check_limits(limits: Limits) -> None:
    pairs = (
        ("min_lock_duration_s", limits.min_lock_duration_s, limits.max_lock_duration_s),
        ("min_duplicate_window_s", limits.min_duplicate_window_s, limits.max_duplicate_window_s),
        ("min_store_reserve_bytes", limits.min_store_reserve_bytes, limits.max_store_reserve_bytes),
    )
    for name, least, most in pairs:
        _check(least <= most, f"limits.{name}", f"{least} is above {name.replace('min_', 'max_')}, {most}")
    _check(limits.size_choices_megabytes, "limits.size_choices_megabytes", "at least one size is needed")
