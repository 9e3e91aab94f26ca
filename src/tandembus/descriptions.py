"""What an entity is asked to be: plain data, its defaults, and what of it is allowed.

Below the broker on purpose, which needs these settings and may not know of namespaces. Nothing here looks
anything up: whether a name is taken is the catalog's to say.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from tandembus.errors import InvalidArgument, InvalidOperation
from tandembus.limits import Limits

NEVER_S: Final = 10_675_199 * 86_400.0
"""The longest duration of the service; from here on a duration means 'never' (clients round its last
digits)."""
MAX_DELIVERY_COUNT: Final = 2_147_483_647
DEFAULT_KILOBYTES: Final = 256
LEAST_LARGE_KILOBYTES: Final = 1024
MAX_AUTHORIZATION_RULES: Final = 12

_SEGMENT: Final = re.compile(r"[A-Za-z0-9._~-]+", re.ASCII)
_RULE_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,256}", re.ASCII)
_RULE_KEY: Final = re.compile(r"[!-:<-~]{1,256}", re.ASCII)
_SUBSCRIPTIONS: Final = "subscriptions"


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


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A SAS policy that belongs to one entity and is worth nothing outside of it."""

    key_name: str
    primary_key: str = dataclasses.field(repr=False)
    secondary_key: str = dataclasses.field(repr=False)
    rights: frozenset[str] = frozenset()
    """Of 'Send', 'Listen' and 'Manage'."""
    created_at: float = 0.0
    modified_at: float = 0.0


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue's settings. Durations are seconds; None is never."""

    name: str
    lock_duration_s: float = 60.0
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live_s: float | None = None
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window_s: float = 600.0
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_s: float | None = None
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int | None = None
    """None: whatever the namespace allows."""

    def validated(self, limits: Limits) -> QueueDescription:
        """This description with its different words for 'never' and 'none' made one, or InvalidArgument."""
        description = _normalised(self)
        validate_queue(description, limits)
        return description

    def max_message_size_bytes(self, limits: Limits) -> int:
        if self.max_message_size_in_kilobytes is None:
            return limits.max_message_size_bytes
        return min(self.max_message_size_in_kilobytes * 1024, limits.max_message_size_bytes)


def validate_queue(description: QueueDescription, limits: Limits) -> None:
    """Raises InvalidArgument with what is wrong and what would be right."""
    validate_name(description.name, limits)
    _check_durations(description, limits)
    _check_sizes(description, limits)
    if not 1 <= description.max_delivery_count <= MAX_DELIVERY_COUNT:
        raise _out_of_range("MaxDeliveryCount", description.max_delivery_count, f"1 to {MAX_DELIVERY_COUNT}")
    if description.is_anonymous_accessible:
        raise InvalidArgument("IsAnonymousAccessible cannot be true: every access needs a claim.")
    metadata_length = len(description.user_metadata or "")
    if metadata_length > limits.max_user_metadata_length:
        raise _out_of_range(
            "The length of UserMetadata",
            metadata_length,
            f"up to {limits.max_user_metadata_length} characters",
        )
    for target in (description.forward_to, description.forward_dead_lettered_messages_to):
        if target is not None:
            validate_name(target, limits)
            if target.lower() == description.name.lower():
                raise InvalidArgument(f"'{description.name}' cannot forward to itself.")
    _check_authorization_rules(description.authorization_rules)


def validate_name(name: str, limits: Limits) -> None:
    """Entity paths are ASCII, so that 'the same name in other letters' has one meaning only: A-Z are a-z."""
    if not name:
        raise InvalidArgument("An entity needs a name.")
    shown = name if len(name) <= 300 else name[:300] + "..."
    if len(name) > limits.max_name_length:
        raise InvalidArgument(
            f"The entity name '{shown}' has {len(name)} characters; at most {limits.max_name_length} are allowed."
        )
    segments = name.split("/")
    for segment in segments:
        if not segment:
            raise InvalidArgument(
                f"The entity name '{shown}' has an empty path segment: '/' may only stand between other characters."
            )
        if not _SEGMENT.fullmatch(segment):
            raise InvalidArgument(
                f"The entity name '{shown}' is not valid: "
                "letters, digits, '.', '-', '_', '~' and '/' between segments are allowed."
            )
        if segment in (".", ".."):
            raise InvalidArgument(f"The entity name '{shown}' is not valid: no segment may be '.' or '..'.")
    if _SUBSCRIPTIONS in [segment.lower() for segment in segments[1:]]:
        raise InvalidArgument(f"The entity name '{shown}' is not valid: 'Subscriptions' is a reserved segment.")


def check_supported(description: QueueDescription) -> None:
    """What clients may ask for and this version does not do yet: said here and nowhere else."""
    not_there = {
        "RequiresSession": description.requires_session,
        "RequiresDuplicateDetection": description.requires_duplicate_detection,
        "EnablePartitioning": description.enable_partitioning,
        "ForwardTo": description.forward_to is not None,
        "ForwardDeadLetteredMessagesTo": description.forward_dead_lettered_messages_to is not None,
    }
    for name, is_asked_for in not_there.items():
        if is_asked_for:
            raise InvalidOperation(f"{name} is not available in this version.")


def check_update(old: QueueDescription, new: QueueDescription) -> None:
    """Some things are decided when an entity is made; everything stored since rests on them."""
    fixed = {
        "RequiresSession": (old.requires_session, new.requires_session),
        "RequiresDuplicateDetection": (old.requires_duplicate_detection, new.requires_duplicate_detection),
        "EnablePartitioning": (old.enable_partitioning, new.enable_partitioning),
    }
    for name, (before, after) in fixed.items():
        if before != after:
            raise InvalidArgument(
                f"{name} of '{old.name}' cannot be changed from {_boolean(before)} to {_boolean(after)}: "
                "it is fixed when the entity is created."
            )


def to_record(description: QueueDescription) -> dict[str, object]:
    """The description as plain values, for a store that knows only those."""
    record = {
        one.name: getattr(description, one.name)
        for one in dataclasses.fields(description)
        if one.name not in ("status", "authorization_rules")
    }
    record["status"] = description.status.value
    record["authorization_rules"] = [
        {**dataclasses.asdict(rule), "rights": sorted(rule.rights)} for rule in description.authorization_rules
    ]
    return record


def from_record(record: Mapping[str, object]) -> QueueDescription:
    """The inverse of `to_record`; what an older record does not have gets its default."""
    known = {one.name for one in dataclasses.fields(QueueDescription)}
    values = {name: value for name, value in record.items() if name in known}
    values["status"] = EntityStatus(values.get("status", EntityStatus.ACTIVE.value))
    rules = values.get("authorization_rules", [])
    assert isinstance(rules, list)
    values["authorization_rules"] = tuple(
        AuthorizationRule(**{**rule, "rights": frozenset(rule["rights"])}) for rule in rules
    )
    return QueueDescription(**values)  # type: ignore[arg-type]


def _normalised(description: QueueDescription) -> QueueDescription:
    return replace(
        description,
        default_message_time_to_live_s=_unless_never(description.default_message_time_to_live_s),
        auto_delete_on_idle_s=_unless_never(description.auto_delete_on_idle_s),
        forward_to=description.forward_to or None,
        forward_dead_lettered_messages_to=description.forward_dead_lettered_messages_to or None,
        user_metadata=description.user_metadata or None,
    )


def _unless_never(duration_s: float | None) -> float | None:
    return None if duration_s is None or duration_s >= NEVER_S else duration_s


def _check_durations(description: QueueDescription, limits: Limits) -> None:
    _check_duration("LockDuration", description.lock_duration_s, limits.min_lock_duration_s, limits.max_lock_duration_s)
    time_to_live_s = description.default_message_time_to_live_s
    if time_to_live_s is not None and not time_to_live_s > 0.0:
        raise _out_of_range("DefaultMessageTimeToLive", f"{time_to_live_s:g} s", "more than 0 s")
    idle_s = description.auto_delete_on_idle_s
    if idle_s is not None:
        _check_duration("AutoDeleteOnIdle", idle_s, limits.min_auto_delete_on_idle_s, NEVER_S)
    _check_duration(
        "DuplicateDetectionHistoryTimeWindow",
        description.duplicate_detection_history_time_window_s,
        limits.min_duplicate_window_s,
        limits.max_duplicate_window_s,
    )


def _check_duration(name: str, duration_s: float, least_s: float, most_s: float) -> None:
    # Written so that a NaN is out of range, too.
    if not least_s <= duration_s <= most_s:
        upper = "up" if most_s >= NEVER_S else f"to {most_s:g} s"
        raise _out_of_range(name, f"{duration_s:g} s", f"{least_s:g} s {upper}")


def _check_sizes(description: QueueDescription, limits: Limits) -> None:
    if description.max_size_in_megabytes not in limits.size_choices_megabytes:
        choices = ", ".join(str(size) for size in limits.size_choices_megabytes)
        raise _out_of_range("MaxSizeInMegabytes", description.max_size_in_megabytes, choices)
    kilobytes = description.max_message_size_in_kilobytes
    largest = limits.max_message_size_bytes // 1024
    if kilobytes is None or kilobytes == largest:
        return
    if largest <= DEFAULT_KILOBYTES:
        raise InvalidArgument(
            f"MaxMessageSizeInKilobytes cannot be {kilobytes}: this namespace has {largest} for every entity."
        )
    if not min(LEAST_LARGE_KILOBYTES, largest) <= kilobytes <= largest:
        raise _out_of_range(
            "MaxMessageSizeInKilobytes", kilobytes, f"{min(LEAST_LARGE_KILOBYTES, largest)} to {largest}"
        )


def _check_authorization_rules(rules: tuple[AuthorizationRule, ...]) -> None:
    if len(rules) > MAX_AUTHORIZATION_RULES:
        raise _out_of_range("The number of AuthorizationRules", len(rules), f"up to {MAX_AUTHORIZATION_RULES}")
    if len({rule.key_name.lower() for rule in rules}) != len(rules):
        raise InvalidArgument("Two AuthorizationRules have the same KeyName.")
    for rule in rules:
        if not _RULE_NAME.fullmatch(rule.key_name):
            raise InvalidArgument("The KeyName of an AuthorizationRule has 1 to 256 letters, digits, '.', '_' and '-'.")
        if not rule.rights or not rule.rights <= {"Send", "Listen", "Manage"}:
            raise InvalidArgument(
                f"AuthorizationRule '{rule.key_name}' needs one or more of the rights Send, Listen, Manage."
            )
        for key in (rule.primary_key, rule.secondary_key):
            if not _RULE_KEY.fullmatch(key):
                raise InvalidArgument(
                    f"The keys of AuthorizationRule '{rule.key_name}' have 1 to 256 printable characters, "
                    "no space and no semicolon."
                )


def _out_of_range(name: str, value: object, allowed: str) -> InvalidArgument:
    return InvalidArgument(f"{name} is {value}; allowed: {allowed}.")


def _boolean(value: bool) -> str:
    return "true" if value else "false"
