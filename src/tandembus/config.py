"""Settings of `tandembus serve`: defaults < configuration file < environment < flags.

Read and checked once, at the edge; everything behind gets frozen values of the right type. A mistake is
answered with where it stands, what it is, and what would be allowed there.
"""

from __future__ import annotations

import dataclasses
import difflib
import ipaddress
import math
import os
import re
import tomllib
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from tandembus.limits import Limits, setting

__all__ = [
    "EMULATOR_KEY",
    "ConfigurationError",
    "IssuerSetting",
    "Limits",
    "PolicySetting",
    "ServeSettings",
    "emulator_limits",
    "is_loopback",
    "load_settings",
    "settings_document",
    "settings_from_document",
    "unknown_variables",
]

ENVIRONMENT_PREFIX: Final = "TANDEMBUS_"
LIMITS_PREFIX: Final = ENVIRONMENT_PREFIX + "LIMITS_"
OTHER_VARIABLES: Final = ("COMPILE", "CONNECTION_STRING", "PRIMARY", "SECONDARY", "SPARK_MASTER")
"""Read by other commands, or by the build."""
_OF_KUBERNETES: Final = re.compile(
    ENVIRONMENT_PREFIX + r"(PORT|PORT_.*|(.+_)?SERVICE_.*|.+_PORT_\d+_(TCP|UDP|SCTP)(_.*)?)", re.ASCII | re.DOTALL
)
_ADDRESS_OF_KUBERNETES: Final = ("tcp://", "udp://", "sctp://")
"""How a value begins that Kubernetes makes. For a service `tandembus-amqp` that is the value of TANDEMBUS_AMQP_PORT."""
_TABLES: Final = ("limits", "policies", "issuers")
"""Settings that no variable can hold as a whole."""
MAX_FILE_BYTES: Final = 1024 * 1024
RIGHTS: Final = ("Send", "Listen", "Manage")
MIN_KEY_LENGTH: Final = 16
"""Shortest new key, since a shorter one can be guessed. Shorter keys that are stored already stay good."""
EMULATOR_KEY: Final = "SAS_KEY_VALUE"
"""The key in everybody's connection strings for the official emulator."""
EMULATOR_CONFIG: Final = Path("/ServiceBus_Emulator/ConfigFiles/Config.json")
"""Where its container has its file."""
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
_LISTENER: Final = re.compile(
    r"((\[(?P<ipv6>[0-9A-Fa-f:.%]{2,64})\]|(?P<host>[A-Za-z0-9._-]{1,253})):)?(?P<port>\d{1,5})", re.ASCII
)
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
class IssuerSetting:
    """An OpenID Connect issuer whose JSON web tokens are accepted."""

    issuer: str = setting("", "what its tokens have as `iss`")
    audience: tuple[str, ...] = setting((), "what its tokens must have as `aud`, one of these")
    jwks: str = setting("", "its public keys (JSON web key set): an https URL, or a file")
    role_claim: str = setting("roles", "where its tokens have their roles; dots lead into nested claims")
    manage_roles: tuple[str, ...] = setting(("Azure Service Bus Data Owner",), "roles that grant Manage")
    send_roles: tuple[str, ...] = setting(("Azure Service Bus Data Sender",), "roles that grant Send")
    listen_roles: tuple[str, ...] = setting(("Azure Service Bus Data Receiver",), "roles that grant Listen")
    clock_skew_s: float = setting(60.0, "how far its clock may be off", minimum=0.0, maximum=3_600.0)


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
    listeners: tuple[str, ...] = setting(
        (),
        "further addresses to listen on, each HOST:PORT, [IPv6]:PORT, or a port of `host`; each speaks everything",
    )
    key: str | None = setting(
        None,
        "key of RootManageSharedAccessKey, 16 characters or more; without it a random one is kept in the data folder",
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
    emulator: bool = setting(
        False,
        "take the place of the emulator's container: read `Config.json` at the container's path, and print the "
        "emulator's ready line",
    )
    open_emulator_key: bool = setting(
        False, "accept the emulator's key SAS_KEY_VALUE, which everybody knows, also from other machines"
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
    issuers: tuple[IssuerSetting, ...] = setting(
        (), "issuers of JSON web tokens (OpenID Connect) to accept, as [[issuers]] tables"
    )
    limits: Limits = setting(Limits(), "limits, as a [limits] table")  # noqa: RUF009

    def __post_init__(self) -> None:
        _check(
            _NAMESPACE_NAME.fullmatch(self.name),
            "name",
            "letters, digits, '.' and '-' (at most 64) are allowed",
        )
        _check(self.host.strip() == self.host and self.host, "host", "a host name or network address is needed")
        further = self.further_addresses
        _check(len(set(further)) == len(further), "listeners", "one address stands there twice")
        _check_key("key", self.key)
        for policy in self.policies:
            _check_policy(policy, self.accepts_emulator_key)
        names = [policy.name.lower() for policy in self.policies]
        _check(len(set(names)) == len(names), "policies", "two policies have the same name")
        for issuer in self.issuers:
            _check_issuer(issuer)
        _check(
            not self.issuers or not self.accept_any_jwt,
            "accept_any_jwt",
            "tokens of [[issuers]] are checked: remove one",
        )
        _check(
            len({one.issuer for one in self.issuers}) == len(self.issuers), "issuers", "two tables name the same issuer"
        )
        _check(
            (self.tls_certificate is None) == (self.tls_private_key is None),
            "tls_certificate",
            "tls_certificate and tls_private_key are only of use together",
        )
        _check(
            not self.accept_any_jwt or self.is_on_loopback,
            "accept_any_jwt",
            f"it would let everybody in who reaches {', '.join(self.hosts)}; it is allowed on a loopback address only",
        )
        _check(
            not self.open_emulator_key or self.is_emulator,
            "open_emulator_key",
            "that key is accepted only with --emulator or a Config.json of the emulator",
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
    def further_addresses(self) -> tuple[tuple[str, int], ...]:
        """Host and port of each of `listeners`."""
        return tuple(_listener_address(one, self.host) for one in self.listeners)

    @property
    def hosts(self) -> tuple[str, ...]:
        """All network addresses that are listened on."""
        return tuple(dict.fromkeys([self.host, *[host for host, _ in self.further_addresses]]))

    @property
    def is_on_loopback(self) -> bool:
        """Whether nobody can reach it from another machine."""
        return all(is_loopback(host) for host in self.hosts)

    @property
    def is_emulator(self) -> bool:
        return self.emulator or self.emulator_config is not None

    @property
    def accepts_emulator_key(self) -> bool:
        """Everybody knows that key: other machines may use it only where that was asked for."""
        return self.is_emulator and (self.is_on_loopback or self.open_emulator_key)


def _listener_address(text: str, default_host: str) -> tuple[str, int]:
    found = _LISTENER.fullmatch(text)
    port = int(found["port"]) if found is not None else 65_536
    if found is None or port > 65_535:
        raise ConfigurationError(f"listeners: '{text[:80]}' is not HOST:PORT, [IPv6]:PORT or a port from 0 to 65535")
    return found["ipv6"] or found["host"] or default_host, port


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
    if values.get("emulator"):
        values = {**_from_emulator(environment or {}), **values}
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
    """Names that are not known are left to `unknown_variables`."""
    given = {name: text for name, text in environment.items() if not text.startswith(_ADDRESS_OF_KUBERNETES)}
    values = {name: given[variable] for variable, name in _variables(ServeSettings).items() if variable in given}
    limits = {name: given[variable] for variable, name in _variables(Limits).items() if variable in given}
    return _Source("environment variable TANDEMBUS_", values, limits, "LIMITS_")


def _variables(owner: type) -> dict[str, str]:
    """Setting by environment variable."""
    prefix = LIMITS_PREFIX if owner is Limits else ENVIRONMENT_PREFIX
    return {prefix + name.upper(): name for name in _field_names(owner) if name not in _TABLES}


def known_variables() -> list[str]:
    return [*_variables(ServeSettings), *_variables(Limits)]


def unknown_variables(environment: Mapping[str, str]) -> list[tuple[str, str]]:
    """The TANDEMBUS_ variables that nothing reads, each with advice. Those that Kubernetes makes for a service named
    tandembus are not among them."""
    known = [*known_variables(), *[ENVIRONMENT_PREFIX + name for name in OTHER_VARIABLES]]
    return [
        (variable, _advice_about(variable, known))
        for variable, text in sorted(environment.items())
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in known
        if not _OF_KUBERNETES.fullmatch(variable) and not text.startswith(_ADDRESS_OF_KUBERNETES)
    ]


def _advice_about(variable: str, known: Sequence[str]) -> str:
    name = variable.removeprefix(ENVIRONMENT_PREFIX)[:80].upper()
    if name.lower() in _TABLES:
        return "Put it into a file, as a table: --config."
    alike = difflib.get_close_matches(name, [one.removeprefix(ENVIRONMENT_PREFIX) for one in known], 1, 0.0)
    return f"Is {ENVIRONMENT_PREFIX}{alike[0]} meant?"


def _from_emulator(environment: Mapping[str, str]) -> dict[str, object]:
    """What the official emulator's container takes from its surroundings; its other variables change nothing here."""
    values: dict[str, object] = {}
    if os.path.lexists(EMULATOR_CONFIG):
        values["emulator_config"] = EMULATOR_CONFIG
    port = environment.get("EMULATOR_HTTP_PORT")
    return values | _converted(ServeSettings, {"http_port": port} if port else {}, "environment variable EMULATOR_")


def _field_names(owner: type) -> list[str]:
    return [one.name for one in dataclasses.fields(owner)]


def _converted(owner: type, values: Mapping[str, object], origin: str) -> dict[str, object]:
    fields = {one.name: one for one in dataclasses.fields(owner)}
    hints = typing.get_type_hints(owner)
    converted: dict[str, object] = {}
    for name, value in values.items():
        where = origin + _as_written(name, origin)
        if name not in fields:
            alike = difflib.get_close_matches(name, fields, 1)
            advice = f"did you mean {alike[0]}?" if alike else f"there are {', '.join(sorted(fields))}"
            raise ConfigurationError(f"{where}: no such setting; {advice}")
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
    if hint is PolicySetting or hint is IssuerSetting:
        if not isinstance(value, Mapping):
            table = "policies" if hint is PolicySetting else "issuers"
            raise ConfigurationError(f"{where}: expected a [[{table}]] table")
        return hint(**_converted(hint, value, f"{where}."))  # type: ignore[arg-type]
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


def _check_policy(policy: PolicySetting, accepts_emulator_key: bool) -> None:
    name = f"policies.{policy.name}"
    _check(
        _POLICY_NAME.fullmatch(policy.name),
        "policies.name",
        "1 to 256 letters, digits, '.', '_' and '-' are needed",
    )
    _check_key(f"{name}.key", policy.key)
    _check_key(f"{name}.secondary_key", policy.secondary_key)
    for field, key in (("key", policy.key), ("secondary_key", policy.secondary_key or policy.key)):
        is_good = len(key) >= MIN_KEY_LENGTH or (accepts_emulator_key and key == EMULATOR_KEY)
        _check(is_good, f"{name}.{field}", f"a key needs at least {MIN_KEY_LENGTH} characters")
    _check(policy.rights, f"{name}.rights", f"at least one of {', '.join(RIGHTS)} is needed")


def _check_issuer(issuer: IssuerSetting) -> None:
    name = f"issuers.{issuer.issuer}"
    _check(issuer.issuer, "issuers.issuer", "the issuer's name is needed: what its tokens have as `iss`")
    _check(issuer.audience, f"{name}.audience", "at least one audience is needed")
    _check(issuer.jwks, f"{name}.jwks", "a URL or a file with the issuer's keys is needed")
    _check(issuer.role_claim, f"{name}.role_claim", "the name of a claim is needed")
    url = urlsplit(issuer.jwks)
    _check(
        url.scheme != "http" or is_loopback(url.hostname or ""),
        f"{name}.jwks",
        "keys that come over plain http could be anybody's; https is needed, except from a loopback address",
    )


def _check_limits(limits: Limits) -> None:
    pairs = (
        ("min_lock_duration_s", limits.min_lock_duration_s, limits.max_lock_duration_s),
        ("min_duplicate_window_s", limits.min_duplicate_window_s, limits.max_duplicate_window_s),
        ("min_store_reserve_bytes", limits.min_store_reserve_bytes, limits.max_store_reserve_bytes),
    )
    for name, least, most in pairs:
        _check(least <= most, f"limits.{name}", f"{least} is above {name.replace('min_', 'max_')}, {most}")
    _check(limits.size_choices_megabytes, "limits.size_choices_megabytes", "at least one size is needed")
