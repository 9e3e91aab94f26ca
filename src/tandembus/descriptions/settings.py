"""Every setting of queues, topics and subscriptions: the one table from which all interfaces take it.

Atom XML, JSON, the emulator's Config.json, the CLI and the dashboard's forms know a setting by its row here. Which
entities have it, and its default, stand in the classes of `entities`: an entity has the settings that are fields of its
class.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tandembus.descriptions.access import check_authorization_rules
from tandembus.descriptions.names import out_of_range, validate_name
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits

NEVER_S: Final = 10_675_199 * 86_400.0
"""The service's longest duration. From here on a duration means 'never', because clients round its last digits."""
MAX_DELIVERY_COUNT: Final = 2_147_483_647
DEFAULT_KILOBYTES: Final = 256
LEAST_LARGE_KILOBYTES: Final = 1024

Range = tuple[float | None, float | None]


class EntityStatus(Enum):
    """What clients may do with an entity; the value is the word on the wire."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Kind(Enum):
    """The kind of value that a setting has."""

    BOOLEAN = "bool"
    INTEGER = "int"
    SIZE = "choice"
    """One of a few integers."""
    DURATION = "duration"
    """Seconds; None is never."""
    TEXT = "text"
    TARGET = "target"
    """The path of an entity, which XML writes as an absolute URI."""
    STATUS = "status"
    POLICIES = "policies"


NOT_THE_EMULATORS: Final = object()


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    """In Python and in JSON."""
    kind: Kind
    label: str = ""
    """In forms; a setting without one is in no form and has no option."""
    help: str = ""
    option: str = ""
    """The option of the CLI; several names are separated by a space."""
    is_fixed: bool = False
    """Chosen when the entity is created, and never changed."""
    since: str = ""
    """The first api-version that has the element; "" for all of them."""
    emulator_default: object = NOT_THE_EMULATORS
    """Where Config.json does not name it; the official emulator knows only settings that have one."""
    range: Callable[[Limits], Range] | None = None
    """The smallest and largest number or duration; of a text, its length."""

    @property
    def element(self) -> str:
        """In Atom XML and in Config.json: `lock_duration_s` is LockDuration."""
        return "".join([word.capitalize() for word in self.name.removesuffix("_s").split("_")])

    @property
    def cli_name(self) -> str:
        """The key in the JSON of the CLI: the last name of the option, with its unit at the end."""
        name = self.option.rpartition(" ")[2].removeprefix("--").replace("-", "_")
        return _CLI_NAMES.get(name) or (f"{name}_s" if self.kind is Kind.DURATION else name)


_CLI_NAMES: Final = {"enable_partitioning": "partitioning", "default_ttl": "default_time_to_live_s"}


def _message_size_range(limits: Limits) -> Range:
    largest = limits.largest_message_bytes // 1024
    return largest if largest <= DEFAULT_KILOBYTES else min(LEAST_LARGE_KILOBYTES, largest), largest


def _name_range(limits: Limits) -> Range:
    return 0, limits.max_name_length


SETTINGS: Final = (
    Setting("status", Kind.STATUS, "Status", "What clients may do with it.", "--status", since="2012-03"),
    Setting(
        "enable_partitioning",
        Kind.BOOLEAN,
        "Enable partitioning",
        "Spread over 16 fragments, on all brokers and stores.",
        "--enable-partitioning",
        is_fixed=True,
        since="2013-10",
    ),
    Setting(
        "max_size_in_megabytes",
        Kind.SIZE,
        "Maximum size (MB)",
        "How much it holds before sends are refused; each fragment of a partitioned one.",
        "--max-size-mb",
    ),
    Setting(
        "requires_session",
        Kind.BOOLEAN,
        "Require sessions",
        "Messages are received session by session, in order.",
        "--requires-session",
        is_fixed=True,
        emulator_default=False,
    ),
    Setting(
        "requires_duplicate_detection",
        Kind.BOOLEAN,
        "Detect duplicates",
        "A message id that was there within the window is dropped.",
        "--requires-duplicate-detection",
        is_fixed=True,
        emulator_default=False,
    ),
    Setting(
        "duplicate_detection_history_time_window_s",
        Kind.DURATION,
        "Duplicate detection window",
        "How long message ids are remembered.",
        "--duplicate-window --duplicate-detection-window",
        emulator_default=20.0,
        range=lambda limits: (limits.min_duplicate_window_s, limits.max_duplicate_window_s),
    ),
    Setting(
        "lock_duration_s",
        Kind.DURATION,
        "Lock duration",
        "How long a receiver has a message for itself.",
        "--lock-duration",
        emulator_default=60.0,
        range=lambda limits: (limits.min_lock_duration_s, limits.max_lock_duration_s),
    ),
    Setting(
        "max_delivery_count",
        Kind.INTEGER,
        "Maximum delivery count",
        "After so many deliveries a message becomes a dead letter.",
        "--max-delivery-count",
        emulator_default=3,
        range=lambda _limits: (1, MAX_DELIVERY_COUNT),
    ),
    Setting(
        "default_message_time_to_live_s",
        Kind.DURATION,
        "Default time to live",
        "When messages expire that do not say so themselves.",
        "--default-ttl",
        emulator_default=3_600.0,
        range=lambda _limits: (0.001, None),
    ),
    Setting(
        "dead_lettering_on_message_expiration",
        Kind.BOOLEAN,
        "Dead-letter expired messages",
        "Otherwise they are dropped when they expire.",
        "--dead-lettering-on-expiration",
        emulator_default=False,
    ),
    Setting(
        "dead_lettering_on_filter_evaluation_exceptions",
        Kind.BOOLEAN,
        "Dead-letter on filter errors",
        "A message on which a rule fails is kept as a dead letter.",
        "--dead-lettering-on-filter-errors",
    ),
    Setting(
        "forward_to",
        Kind.TARGET,
        "Forward to",
        "A queue or topic that gets all its messages; empty for none.",
        "--forward-to",
        since="2012-03",
        emulator_default=None,
        range=_name_range,
    ),
    Setting(
        "forward_dead_lettered_messages_to",
        Kind.TARGET,
        "Forward dead letters to",
        "A queue or topic that gets all its dead letters; empty for none.",
        "--forward-dead-letters-to",
        since="2014-01",
        emulator_default=None,
        range=_name_range,
    ),
    Setting(
        "auto_delete_on_idle_s",
        Kind.DURATION,
        "Delete when idle for",
        "It is deleted when nobody has used it for so long.",
        "--auto-delete-on-idle",
        since="2012-08",
        range=lambda limits: (limits.min_auto_delete_on_idle_s, None),
    ),
    Setting(
        "max_message_size_in_kilobytes",
        Kind.INTEGER,
        "Maximum message size (KB)",
        "Without it, as much as the namespace allows.",
        "--max-message-size-kb",
        since="2021-05",
        range=_message_size_range,
    ),
    Setting(
        "enable_batched_operations",
        Kind.BOOLEAN,
        "Batched operations",
        "Kept for clients; operations are always committed in groups.",
        "--batched-operations",
    ),
    Setting(
        "enable_express",
        Kind.BOOLEAN,
        "Express",
        "Kept for clients; messages are always made durable.",
        "--express",
        since="2014-01",
    ),
    Setting(
        "support_ordering",
        Kind.BOOLEAN,
        "Support ordering",
        "Kept for clients; messages are always in order.",
        "--support-ordering",
        since="2012-03",
    ),
    Setting(
        "filtering_messages_before_publishing",
        Kind.BOOLEAN,
        "Filter before publishing",
        "Kept for clients; a message that no subscription takes is never an error.",
        "--filtering-before-publishing",
        since="2012-03",
    ),
    Setting(
        "user_metadata",
        Kind.TEXT,
        "User metadata",
        "A note of yours; empty for none.",
        "--user-metadata",
        since="2012-03",
        range=lambda limits: (0, limits.max_user_metadata_length),
    ),
    Setting("authorization_rules", Kind.POLICIES, since="2012-08"),
    Setting("is_anonymous_accessible", Kind.BOOLEAN, since="2012-03"),
)
BY_NAME: Final[Mapping[str, Setting]] = {setting.name: setting for setting in SETTINGS}
BY_ELEMENT: Final[Mapping[str, Setting]] = {setting.element: setting for setting in SETTINGS}


def settings_of(entity: type[Any]) -> list[Setting]:
    """The settings that are fields of this class, in the order of the table."""
    names = {field.name for field in dataclasses.fields(entity)}
    return [setting for setting in SETTINGS if setting.name in names]


def defaults_of(entity: type[Any]) -> dict[str, Any]:
    """By name; a setting whose default is None may be None."""
    return {field.name: field.default for field in dataclasses.fields(entity) if field.name in BY_NAME}


def choices_of(setting: Setting, limits: Limits) -> Sequence[object] | None:
    if setting.kind is Kind.STATUS:
        return [status.value for status in EntityStatus]
    return list(limits.size_choices_megabytes) if setting.kind is Kind.SIZE else None


def validated_settings(description: Any, limits: Limits) -> dict[str, Any]:
    """The settings of a description, with None as the only word for 'never' and 'none'.

    Raises InvalidArgument for a value that is out of its range.
    """
    values: dict[str, Any] = {}
    defaults = defaults_of(type(description))
    for setting in settings_of(type(description)):
        value = getattr(description, setting.name)
        if defaults[setting.name] is None and (value == "" or (setting.kind is Kind.DURATION and is_never(value))):
            value = None
        elif value is None and setting.kind is Kind.DURATION and defaults[setting.name] is not None:
            value = math.inf
        check_setting(setting, value, limits)
        values[setting.name] = value
    return values


def is_never(duration_s: float | None) -> bool:
    return duration_s is None or duration_s >= NEVER_S


def check_setting(setting: Setting, value: Any, limits: Limits) -> None:
    """Raises InvalidArgument with what is wrong and what would be right. None, where it is allowed, is right."""
    if value is None:
        return
    match setting.kind:
        case Kind.POLICIES:
            check_authorization_rules(value)
        case Kind.TARGET:
            # Forwarding to itself is allowed: the hop limit ends it.
            validate_name(value, limits)
        case Kind.SIZE if value not in limits.size_choices_megabytes:
            raise out_of_range(setting.element, value, ", ".join(map(str, limits.size_choices_megabytes)))
        case Kind.DURATION | Kind.INTEGER | Kind.TEXT:
            _check_range(setting, value, limits)
    if setting.name == "is_anonymous_accessible" and value:
        raise InvalidArgument("IsAnonymousAccessible cannot be true: every access needs a claim.")


def _check_range(setting: Setting, value: Any, limits: Limits) -> None:
    assert setting.range is not None
    least, most = setting.range(limits)
    if setting.name == "max_message_size_in_kilobytes":
        if value == limits.max_message_size_bytes // 1024:
            return
        if limits.largest_message_bytes // 1024 <= DEFAULT_KILOBYTES:
            raise InvalidArgument(
                f"MaxMessageSizeInKilobytes cannot be {value}: this namespace has {most} for every entity. "
                "Its setting largest_message_size_bytes allows more."
            )
    number = len(value) if setting.kind is Kind.TEXT else value
    # Written so that a NaN is out of range, too.
    if least is not None and number >= least and (most is None or number <= most):
        return
    if setting.kind is Kind.TEXT:
        raise out_of_range(f"The length of {setting.element}", number, f"up to {most} characters")
    unit = " s" if setting.kind is Kind.DURATION else ""
    upper = "up" if most is None else f"to {most:.10g}{unit}"
    raise out_of_range(setting.element, f"{number:.10g}{unit}", f"{least:.10g}{unit} {upper}")
