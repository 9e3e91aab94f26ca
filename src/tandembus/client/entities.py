"""Queues, topics and subscriptions as plain data, and as the descriptions a namespace speaks.

`None` in the settings means "what the service takes by default", so that this works with any service, whatever its
defaults are. What the settings are called on the wire stands in one table; which of them an entity has, and in which
order the service wants them, is the order of the fields of its class.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, Generic, TypeVar
from xml.etree import ElementTree

from tandembus.client.access_policies import AccessPolicy, add_policies, policies_in
from tandembus.client.atom import ATOM, CONNECT, COUNTS, add, description_in, text_of, title_of, value_of, whole_number
from tandembus.client.rules import rule_element
from tandembus.descriptions import RuleDescription
from tandembus.descriptions.changes import FRAGMENT_COUNT


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be chosen for a queue. `None` leaves the choice to the service."""

    lock_duration_s: float | None = None
    max_size_mb: int | None = None
    requires_duplicate_detection: bool | None = None
    requires_session: bool | None = None
    default_time_to_live_s: float | None = None
    dead_lettering_on_expiration: bool | None = None
    duplicate_detection_window_s: float | None = None
    max_delivery_count: int | None = None
    batched_operations: bool | None = None
    policies: tuple[AccessPolicy, ...] | None = None
    status: str | None = None
    auto_delete_on_idle_s: float | None = None
    partitioning: bool | None = None
    express: bool | None = None
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_letters_to: str | None = None
    max_message_size_kb: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What can be chosen for a topic; what its subscriptions do with a message is theirs to choose."""

    default_time_to_live_s: float | None = None
    max_size_mb: int | None = None
    requires_duplicate_detection: bool | None = None
    duplicate_detection_window_s: float | None = None
    batched_operations: bool | None = None
    filtering_before_publishing: bool | None = None
    policies: tuple[AccessPolicy, ...] | None = None
    status: str | None = None
    support_ordering: bool | None = None
    auto_delete_on_idle_s: float | None = None
    partitioning: bool | None = None
    express: bool | None = None
    user_metadata: str | None = None
    max_message_size_kb: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    lock_duration_s: float | None = None
    requires_session: bool | None = None
    default_time_to_live_s: float | None = None
    dead_lettering_on_expiration: bool | None = None
    dead_lettering_on_filter_errors: bool | None = None
    max_delivery_count: int | None = None
    batched_operations: bool | None = None
    status: str | None = None
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    auto_delete_on_idle_s: float | None = None
    user_metadata: str | None = None


Settings = QueueSettings | TopicSettings | SubscriptionSettings
S = TypeVar("S", QueueSettings, TopicSettings, SubscriptionSettings)

ELEMENTS: Final[Mapping[str, tuple[str, str]]] = {
    "lock_duration_s": ("LockDuration", "duration"),
    "max_size_mb": ("MaxSizeInMegabytes", "number"),
    "requires_duplicate_detection": ("RequiresDuplicateDetection", "flag"),
    "requires_session": ("RequiresSession", "flag"),
    "default_time_to_live_s": ("DefaultMessageTimeToLive", "duration"),
    "dead_lettering_on_expiration": ("DeadLetteringOnMessageExpiration", "flag"),
    "dead_lettering_on_filter_errors": ("DeadLetteringOnFilterEvaluationExceptions", "flag"),
    "duplicate_detection_window_s": ("DuplicateDetectionHistoryTimeWindow", "duration"),
    "max_delivery_count": ("MaxDeliveryCount", "number"),
    "batched_operations": ("EnableBatchedOperations", "flag"),
    "filtering_before_publishing": ("FilteringMessagesBeforePublishing", "flag"),
    "policies": ("AuthorizationRules", "policies"),
    "status": ("Status", "text"),
    "support_ordering": ("SupportOrdering", "flag"),
    "auto_delete_on_idle_s": ("AutoDeleteOnIdle", "duration"),
    "partitioning": ("EnablePartitioning", "flag"),
    "express": ("EnableExpress", "flag"),
    "forward_to": ("ForwardTo", "entity"),
    "user_metadata": ("UserMetadata", "text"),
    "forward_dead_letters_to": ("ForwardDeadLetteredMessagesTo", "entity"),
    "max_message_size_kb": ("MaxMessageSizeInKilobytes", "number"),
}
"""Setting -> its element, and what stands in it."""

DESCRIPTIONS: Final[Mapping[type[Settings], str]] = {
    QueueSettings: "QueueDescription",
    TopicSettings: "TopicDescription",
    SubscriptionSettings: "SubscriptionDescription",
}

_RULE_STANDS_BEFORE: Final = "max_delivery_count"


@dataclass(frozen=True, slots=True)
class EntityCounts:
    """None: the service does not know at the moment."""

    active: int | None = 0
    dead_letter: int | None = 0
    scheduled: int | None = 0
    transfer: int | None = 0
    transfer_dead_letter: int | None = 0
    size_bytes: int | None = 0


@dataclass(frozen=True, slots=True)
class EntityInfo(Generic[S]):
    """An entity as the service describes it. Times are ISO 8601 text in UTC, as they came."""

    name: str
    settings: S
    counts: EntityCounts
    created_at: str | None = None
    updated_at: str | None = None
    accessed_at: str | None = None
    subscription_count: int = 0
    """Of a topic."""
    availability_status: str | None = None
    """`Available`, or `Limited` while a part of it is out of reach; None where the service does not say."""

    @property
    def is_limited(self) -> bool:
        """Whether a part of it is out of reach: the counts are those of the rest, so there may be more."""
        return self.availability_status == "Limited"

    @property
    def fragment_count(self) -> int | None:
        """Over how many fragments its messages are spread; None for a subscription: as many as its topic has."""
        if isinstance(self.settings, SubscriptionSettings):
            return None
        return FRAGMENT_COUNT if self.settings.partitioning else 1


_COUNT_ELEMENTS: Final = (
    ("ActiveMessageCount", "active"),
    ("DeadLetterMessageCount", "dead_letter"),
    ("ScheduledMessageCount", "scheduled"),
    ("TransferMessageCount", "transfer"),
    ("TransferDeadLetterMessageCount", "transfer_dead_letter"),
)


def changed(present: S, changes: S) -> S:
    """The settings with what `changes` names; an empty text means none."""
    chosen = {each.name: getattr(changes, each.name) for each in fields(changes)}
    merged = replace(present, **{name: value for name, value in chosen.items() if value is not None})
    emptied = [each.name for each in fields(merged) if getattr(merged, each.name) == ""]
    return replace(merged, **dict.fromkeys(emptied))


def description_of(
    settings: Settings, namespace: str, default_rule: RuleDescription | None = None
) -> ElementTree.Element:
    """What asks for an entity with these settings.

    `namespace` is `sb://HOST`, since the service takes only absolute addresses of where to forward to.
    `default_rule` is a new subscription's first rule, in place of the one that takes everything.
    """
    description = ElementTree.Element(CONNECT + DESCRIPTIONS[type(settings)])
    for each in fields(settings):
        if each.name == _RULE_STANDS_BEFORE and default_rule is not None:
            description.append(rule_element(default_rule, "DefaultRuleDescription"))
        value = getattr(settings, each.name)
        if value is None:
            continue
        element, kind = ELEMENTS[each.name]
        if kind == "policies":
            add_policies(description, value)
        else:
            add(description, element, f"{namespace}/{value}" if kind == "entity" else text_of(kind, value))
    return description


def is_topic(entry: ElementTree.Element) -> bool:
    """Queues and topics share their names, so an answer may be about either."""
    return _describes(entry, TopicSettings)


def is_queue(entry: ElementTree.Element) -> bool:
    return _describes(entry, QueueSettings)


def _describes(entry: ElementTree.Element, kind: type[Settings]) -> bool:
    return entry.find(f"{ATOM}content/{CONNECT}{DESCRIPTIONS[kind]}") is not None


def entity_of(entry: ElementTree.Element, kind: type[S]) -> EntityInfo[S]:
    description = description_in(entry, DESCRIPTIONS[kind])
    settings = {each.name: _setting_in(description, each.name) for each in fields(kind)}
    return EntityInfo(
        name=title_of(entry),
        settings=kind(**settings),  # type: ignore[arg-type]
        counts=_counts_in(description),
        created_at=description.findtext(f"{CONNECT}CreatedAt"),
        updated_at=description.findtext(f"{CONNECT}UpdatedAt"),
        accessed_at=description.findtext(f"{CONNECT}AccessedAt"),
        subscription_count=whole_number(description.findtext(f"{CONNECT}SubscriptionCount")),
        availability_status=description.findtext(f"{CONNECT}EntityAvailabilityStatus"),
    )


def _setting_in(description: ElementTree.Element, name: str) -> object:
    element, kind = ELEMENTS[name]
    if kind == "policies":
        return policies_in(description)
    value = value_of(kind, description.findtext(CONNECT + element))
    return _path_in(value) if kind == "entity" and isinstance(value, str) else value


def _path_in(address: str) -> str | None:
    """The entity's path in `sb://HOST/PATH`; a path without a host as it is."""
    _, is_absolute, rest = address.partition("://")
    return (rest.partition("/")[2] if is_absolute else address).strip("/") or None


def _counts_in(description: ElementTree.Element) -> EntityCounts:
    details = description.find(f"{CONNECT}CountDetails")
    counts = {
        attribute: _count(details.findtext(COUNTS + element) if details is not None else None)
        for element, attribute in _COUNT_ELEMENTS
    }
    return EntityCounts(size_bytes=_count(description.findtext(f"{CONNECT}SizeInBytes")), **counts)


def _count(text: str | None) -> int | None:
    count = whole_number(text)
    return count if count >= 0 else None
