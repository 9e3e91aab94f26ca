"""Queues, topics and subscriptions as a client asks for them, and as a namespace describes them.

Settings have the names of `descriptions.settings`. `None` leaves one to the service, so that this works with any
service, whatever its defaults are; a duration of infinity means never.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, TypeVar

from tandembus.client.access_policies import AccessPolicy
from tandembus.client.atom import as_answered, description_in, title_of
from tandembus.descriptions import EntityKind, RuleDescription
from tandembus.descriptions.atom import ATOM, ORDERS, ROOTS, children_of, described, read_settings, write_setting
from tandembus.descriptions.atom_rules import rule_elements
from tandembus.descriptions.changes import FRAGMENT_COUNT
from tandembus.descriptions.durations import parse_integer
from tandembus.descriptions.settings import BY_ELEMENT, BY_NAME, Kind
from tandembus.descriptions.xml_reader import Element


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """What can be chosen for a queue. `None` leaves the choice to the service."""

    lock_duration_s: float | None = None
    max_size_in_megabytes: int | None = None
    requires_duplicate_detection: bool | None = None
    requires_session: bool | None = None
    default_message_time_to_live_s: float | None = None
    dead_lettering_on_message_expiration: bool | None = None
    duplicate_detection_history_time_window_s: float | None = None
    max_delivery_count: int | None = None
    enable_batched_operations: bool | None = None
    authorization_rules: tuple[AccessPolicy, ...] | None = None
    status: str | None = None
    support_ordering: bool | None = None
    auto_delete_on_idle_s: float | None = None
    enable_partitioning: bool | None = None
    enable_express: bool | None = None
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int | None = None


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """What can be chosen for a topic; each of its subscriptions has settings of its own."""

    default_message_time_to_live_s: float | None = None
    max_size_in_megabytes: int | None = None
    requires_duplicate_detection: bool | None = None
    duplicate_detection_history_time_window_s: float | None = None
    enable_batched_operations: bool | None = None
    filtering_messages_before_publishing: bool | None = None
    authorization_rules: tuple[AccessPolicy, ...] | None = None
    status: str | None = None
    support_ordering: bool | None = None
    auto_delete_on_idle_s: float | None = None
    enable_partitioning: bool | None = None
    enable_express: bool | None = None
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    lock_duration_s: float | None = None
    requires_session: bool | None = None
    default_message_time_to_live_s: float | None = None
    dead_lettering_on_message_expiration: bool | None = None
    dead_lettering_on_filter_evaluation_exceptions: bool | None = None
    max_delivery_count: int | None = None
    enable_batched_operations: bool | None = None
    status: str | None = None
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle_s: float | None = None
    user_metadata: str | None = None


Settings = QueueSettings | TopicSettings | SubscriptionSettings
S = TypeVar("S", QueueSettings, TopicSettings, SubscriptionSettings)

KINDS: Final[Mapping[type[Settings], EntityKind]] = {
    QueueSettings: EntityKind.QUEUE,
    TopicSettings: EntityKind.TOPIC,
    SubscriptionSettings: EntityKind.SUBSCRIPTION,
}


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
        return FRAGMENT_COUNT if self.settings.enable_partitioning else 1


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


def description_of(settings: Settings, host: str, default_rule: RuleDescription | None = None) -> str:
    """What asks for an entity with these settings.

    `host` is the namespace's, since the service takes only absolute addresses of where to forward to.
    `default_rule` is a new subscription's first rule, in place of the one that takes everything.
    """
    kind = KINDS[type(settings)]
    elements: list[str] = []
    for name in ORDERS[kind]:
        if name == "DefaultRuleDescription" and default_rule is not None:
            elements.append(f"<{name}>{''.join(rule_elements(default_rule))}</{name}>")
        setting = BY_ELEMENT.get(name)
        value = getattr(settings, setting.name, None) if setting is not None else None
        if setting is not None and value is not None:
            sent = [policy.as_rule() for policy in value] if setting.kind is Kind.POLICIES else value
            elements.append(write_setting(setting, sent, host))
    return described(ROOTS[kind], elements)


def is_topic(entry: Element) -> bool:
    """Queues and topics share their names, so an answer may be about either."""
    return _describes(entry, EntityKind.TOPIC)


def is_queue(entry: Element) -> bool:
    return _describes(entry, EntityKind.QUEUE)


def _describes(entry: Element, kind: EntityKind) -> bool:
    content = entry.child(ATOM, "content")
    return content is not None and [child.name for child in content.children] == [ROOTS[kind]]


def entity_of(entry: Element, kind: type[S]) -> EntityInfo[S]:
    return as_answered(lambda: _entity_of(entry, kind))


def _entity_of(entry: Element, kind: type[S]) -> EntityInfo[S]:
    elements = children_of(description_in(entry, ROOTS[KINDS[kind]]))
    texts = {name: element.text.strip() or None for name, element in elements.items()}
    elements.pop("Status", None)
    names = {each.name for each in fields(kind)}
    found = {name: value for name, value in read_settings(KINDS[kind], elements).items() if name in names}
    # As it came: a service may have more words for a status than can be asked for.
    found["status"] = texts.get("Status")
    return EntityInfo(
        name=title_of(entry),
        settings=kind(**{name: _own_value(name, value) for name, value in found.items()}),
        counts=_counts_in(elements),
        created_at=texts.get("CreatedAt"),
        updated_at=texts.get("UpdatedAt"),
        accessed_at=texts.get("AccessedAt"),
        subscription_count=_count(texts.get("SubscriptionCount")) or 0,
        availability_status=texts.get("EntityAvailabilityStatus"),
    )


def _own_value(name: str, value: Any) -> Any:
    if value is None and BY_NAME[name].kind is Kind.DURATION:
        return math.inf
    if isinstance(value, tuple):
        return tuple([AccessPolicy.of_rule(rule) for rule in value])
    return value


def _counts_in(elements: Mapping[str, Element]) -> EntityCounts:
    details = elements.get("CountDetails")
    texts = {child.name: child.text.strip() for child in details.children} if details is not None else {}
    counts = {attribute: _count(texts.get(name)) for name, attribute in _COUNT_ELEMENTS}
    size = elements.get("SizeInBytes")
    return EntityCounts(size_bytes=_count(size.text.strip() if size is not None else None), **counts)


def _count(text: str | None) -> int | None:
    """None for a count that the service does not know; one that it leaves out is 0."""
    count = parse_integer(text or "0", "a count")
    return count if count >= 0 else None
