"""Descriptions of queues, topics and subscriptions to and from XML: one table of elements, and an order for each kind.

The order and the words are the wire contract's. Reading takes elements in any order and skips what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tandembus.descriptions import (
    AuthorizationRule,
    EntityDescription,
    EntityKind,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    shown_size_in_megabytes,
)
from tandembus.errors import BusError, InvalidArgument, MalformedData
from tandembus.front_end.http.access_xml import read_authorization_rules, write_authorization_rules
from tandembus.front_end.http.atom import COUNTS, Origin, described, element
from tandembus.front_end.http.elements import (
    BOOLEAN,
    DURATION,
    INTEGER,
    OPTIONAL_DURATION,
    STATUS,
    TARGET,
    TEXT,
    Kind,
    children_of,
    content_of,
)
from tandembus.front_end.http.rule_xml import read_default_rule
from tandembus.front_end.http.values import format_time
from tandembus.front_end.http.xml_reader import Element
from tandembus.limits import Limits

ROOTS: Final[Mapping[EntityKind, str]] = {
    EntityKind.QUEUE: "QueueDescription",
    EntityKind.TOPIC: "TopicDescription",
    EntityKind.SUBSCRIPTION: "SubscriptionDescription",
}
_KINDS: Final = {name: kind for kind, name in ROOTS.items()}

SETTINGS: Final[Mapping[str, tuple[str, Kind]]] = {
    "LockDuration": ("lock_duration_s", DURATION),
    "MaxSizeInMegabytes": ("max_size_in_megabytes", INTEGER),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", BOOLEAN),
    "RequiresSession": ("requires_session", BOOLEAN),
    "DefaultMessageTimeToLive": ("default_message_time_to_live_s", OPTIONAL_DURATION),
    "DeadLetteringOnMessageExpiration": ("dead_lettering_on_message_expiration", BOOLEAN),
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_lettering_on_filter_evaluation_exceptions", BOOLEAN),
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_detection_history_time_window_s", DURATION),
    "MaxDeliveryCount": ("max_delivery_count", INTEGER),
    "EnableBatchedOperations": ("enable_batched_operations", BOOLEAN),
    "FilteringMessagesBeforePublishing": ("filtering_messages_before_publishing", BOOLEAN),
    "IsAnonymousAccessible": ("is_anonymous_accessible", BOOLEAN),
    "Status": ("status", STATUS),
    "SupportOrdering": ("support_ordering", BOOLEAN),
    "AutoDeleteOnIdle": ("auto_delete_on_idle_s", OPTIONAL_DURATION),
    "EnablePartitioning": ("enable_partitioning", BOOLEAN),
    "EnableExpress": ("enable_express", BOOLEAN),
    "ForwardTo": ("forward_to", TARGET),
    "UserMetadata": ("user_metadata", TEXT),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_lettered_messages_to", TARGET),
    "MaxMessageSizeInKilobytes": ("max_message_size_in_kilobytes", INTEGER),
}
"""What can be asked for: the element, and the field of the description that it sets."""

_ORDERS: Final = {
    EntityKind.QUEUE: """
        LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive
        DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount EnableBatchedOperations
        SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt
        SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus EnableExpress
        ForwardTo UserMetadata ForwardDeadLetteredMessagesTo MaxMessageSizeInKilobytes
    """,
    EntityKind.TOPIC: """
        DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection DuplicateDetectionHistoryTimeWindow
        EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing IsAnonymousAccessible AuthorizationRules
        Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails SubscriptionCount SqlFilterCount
        CorrelationFilterCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus
        EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes
    """,
    EntityKind.SUBSCRIPTION: """
        LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration
        DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status
        ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle
        EntityAvailabilityStatus UserMetadata
    """,
}
ORDERS: Final[Mapping[EntityKind, tuple[str, ...]]] = {kind: tuple(text.split()) for kind, text in _ORDERS.items()}


UNKNOWN: Final = "-1"
"""A count that nobody knows, as the SDKs can read it: they take only numbers."""


class Counts(Protocol):
    """What the messages of an entity add up to at the moment."""

    @property
    def active(self) -> int: ...
    @property
    def dead_letter(self) -> int: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def transfer(self) -> int: ...
    @property
    def transfer_dead_letter(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity as an answer shows it: what it was asked to be, and what has become of it."""

    description: EntityDescription
    counts: Counts | None
    """None while no fragment of it can be asked."""
    created_at: float
    updated_at: float
    accessed_at: float
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0
    is_limited: bool = False
    """Whether a part of it is out of reach: its messages are missing in the counts."""
    outage: BusError | None = None
    """Why all of it is."""


def write_entity(view: EntityView, origin: Origin, limits: Limits) -> str:
    """The description's element, with all elements of the contract in its order."""
    kind = view.description.kind
    return described(ROOTS[kind], [_write(name, view, origin, limits) for name in ORDERS[kind]])


def _write(name: str, view: EntityView, origin: Origin, limits: Limits) -> str:
    told = _TOLD.get(name)
    if told is not None:
        return told(view)
    field, kind = SETTINGS[name]
    value = getattr(view.description, field, None)
    if kind is TARGET:
        return element(name, f"sb://{origin.host}/{value}") if value is not None else ""
    if value is None and kind is INTEGER:
        value = limits.max_message_size_bytes // 1024
    text = kind.write(value)
    return element(name, text) if text is not None else ""


def _message_count(view: EntityView) -> str:
    counts = view.counts
    if counts is None:
        return element("MessageCount", UNKNOWN)
    total = counts.active + counts.dead_letter + counts.scheduled + counts.transfer
    return element("MessageCount", str(total))


def _size(view: EntityView) -> str:
    return element("SizeInBytes", UNKNOWN if view.counts is None else str(view.counts.size_bytes))


def _authorization_rules(view: EntityView) -> str:
    return write_authorization_rules(getattr(view.description, "authorization_rules", ()))


def _max_size(view: EntityView) -> str:
    """Of all fragments together; sent back in an update, it means no change."""
    description = view.description
    if isinstance(description, SubscriptionDescription):
        return ""
    return element("MaxSizeInMegabytes", str(shown_size_in_megabytes(description)))


def _availability(view: EntityView) -> str:
    return element("EntityAvailabilityStatus", "Limited" if view.is_limited else "Available")


_TOLD: Final[Mapping[str, Callable[[EntityView], str]]] = {
    "SizeInBytes": _size,
    "MessageCount": _message_count,
    "AuthorizationRules": _authorization_rules,
    "CreatedAt": lambda view: element("CreatedAt", format_time(view.created_at)),
    "UpdatedAt": lambda view: element("UpdatedAt", format_time(view.updated_at)),
    "AccessedAt": lambda view: element("AccessedAt", format_time(view.accessed_at)),
    "CountDetails": lambda view: write_counts(view.counts),
    "SubscriptionCount": lambda view: element("SubscriptionCount", str(view.subscription_count)),
    "SqlFilterCount": lambda view: element("SqlFilterCount", str(view.sql_filter_count)),
    "CorrelationFilterCount": lambda view: element("CorrelationFilterCount", str(view.correlation_filter_count)),
    "MaxSizeInMegabytes": _max_size,
    "EntityAvailabilityStatus": _availability,
    "EnableSubscriptionPartitioning": lambda _view: element("EnableSubscriptionPartitioning", "false"),
}
"""What is told otherwise than it is asked for, or only told: the namespace knows it, and clients that send it back are
not asked."""


_COUNTS: Final[Mapping[str, Callable[[Counts], int]]] = {
    "ActiveMessageCount": lambda counts: counts.active,
    "DeadLetterMessageCount": lambda counts: counts.dead_letter,
    "ScheduledMessageCount": lambda counts: counts.scheduled,
    "TransferMessageCount": lambda counts: counts.transfer,
    "TransferDeadLetterMessageCount": lambda counts: counts.transfer_dead_letter,
}


def write_counts(counts: Counts | None) -> str:
    """CountDetails.

    Its prefix must be declared right here and nothing else may be: the JS SDK looks no further.
    """
    figures = {name: UNKNOWN if counts is None else str(figure(counts)) for name, figure in _COUNTS.items()}
    children = "".join([element(f"d2p1:{name}", text) for name, text in figures.items()])
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{children}</CountDetails>'


@dataclass(frozen=True, slots=True)
class EntityRequest:
    """What a create or update request asks for. Absent elements get the service's defaults."""

    kind: EntityKind
    settings: Mapping[str, Any]
    authorization_rules: tuple[AuthorizationRule, ...] | None
    """None where the request does not speak of them: a client that does not know of them must not lock out those who
    do."""
    default_rule: RuleDescription | None = None
    """What a new subscription begins with in place of taking everything."""

    def queue(self, name: str, present: tuple[AuthorizationRule, ...] = ()) -> QueueDescription:
        return QueueDescription(name, **self.settings, authorization_rules=self._rules(present))

    def topic(self, name: str, present: tuple[AuthorizationRule, ...] = ()) -> TopicDescription:
        return TopicDescription(name, **self.settings, authorization_rules=self._rules(present))

    def subscription(self, topic: str, name: str) -> SubscriptionDescription:
        return SubscriptionDescription(topic, name, **self.settings)

    def _rules(self, present: tuple[AuthorizationRule, ...]) -> tuple[AuthorizationRule, ...]:
        return present if self.authorization_rules is None else self.authorization_rules


def read_entity(root: Element) -> EntityRequest:
    description = content_of(root)
    kind = _KINDS.get(description.name)
    if kind is None:
        raise MalformedData(f"The description '{description.name[:64]}' is not one of an entity.")
    fields = children_of(description)
    rules = fields.get("AuthorizationRules")
    default_rule = fields.get("DefaultRuleDescription") if kind is EntityKind.SUBSCRIPTION else None
    return EntityRequest(
        kind,
        _settings(kind, fields),
        read_authorization_rules(rules) if rules is not None else None,
        read_default_rule(default_rule) if default_rule is not None else None,
    )


def _settings(kind: EntityKind, fields: Mapping[str, Element]) -> dict[str, object]:
    settings: dict[str, object] = {}
    for name in ORDERS[kind]:
        if name in SETTINGS and name in fields:
            field, how = SETTINGS[name]
            settings[field] = how.read(fields[name], name)
    if kind is EntityKind.TOPIC and settings.pop("is_anonymous_accessible", False):
        raise InvalidArgument("IsAnonymousAccessible cannot be true: every access needs a claim.")
    return settings
