"""Queues, topics and subscriptions as they are asked for. Durations are seconds; None is never."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from tandembus.descriptions.access import AuthorizationRule, check_authorization_rules
from tandembus.descriptions.names import subscription_path, validate_name, validate_subscription_name
from tandembus.descriptions.ranges import (
    check_delivery_count,
    check_duplicate_window,
    check_idle_time,
    check_lock_duration,
    check_message_size,
    check_size,
    check_time_to_live,
    check_user_metadata,
    message_size_bytes,
    unless_never,
)
from tandembus.errors import InvalidArgument
from tandembus.limits import Limits


class EntityKind(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


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
class QueueDescription:
    """A queue's settings."""

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

    @property
    def kind(self) -> EntityKind:
        return EntityKind.QUEUE

    @property
    def path(self) -> str:
        """What it is addressed by."""
        return self.name

    def validated(self, limits: Limits) -> QueueDescription:
        """This description with its different words for 'never' and 'none' made one, or InvalidArgument."""
        description = replace(
            self,
            default_message_time_to_live_s=unless_never(self.default_message_time_to_live_s),
            auto_delete_on_idle_s=unless_never(self.auto_delete_on_idle_s),
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
            user_metadata=self.user_metadata or None,
        )
        _validate_queue(description, limits)
        return description

    def max_message_size_bytes(self, limits: Limits) -> int:
        return message_size_bytes(self.max_message_size_in_kilobytes, limits)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's settings; what its subscribers see is set at each subscription."""

    name: str
    default_message_time_to_live_s: float | None = None
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window_s: float = 600.0
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle_s: float | None = None
    enable_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    """None: whatever the namespace allows."""
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    filtering_messages_before_publishing: bool = False

    @property
    def kind(self) -> EntityKind:
        return EntityKind.TOPIC

    @property
    def path(self) -> str:
        """What it is addressed by."""
        return self.name

    def validated(self, limits: Limits) -> TopicDescription:
        """As for queues."""
        description = replace(
            self,
            default_message_time_to_live_s=unless_never(self.default_message_time_to_live_s),
            auto_delete_on_idle_s=unless_never(self.auto_delete_on_idle_s),
            user_metadata=self.user_metadata or None,
        )
        _validate_topic(description, limits)
        return description

    def max_message_size_bytes(self, limits: Limits) -> int:
        return message_size_bytes(self.max_message_size_in_kilobytes, limits)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """What one subscriber of a topic asks for. Its rules stand beside it: they change on their own."""

    topic_name: str
    name: str
    lock_duration_s: float = 60.0
    requires_session: bool = False
    default_message_time_to_live_s: float | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle_s: float | None = None
    user_metadata: str | None = None

    @property
    def kind(self) -> EntityKind:
        return EntityKind.SUBSCRIPTION

    @property
    def path(self) -> str:
        """What it is addressed by: `topic/Subscriptions/name`."""
        return subscription_path(self.topic_name, self.name)

    def validated(self, limits: Limits) -> SubscriptionDescription:
        """As for queues."""
        description = replace(
            self,
            default_message_time_to_live_s=unless_never(self.default_message_time_to_live_s),
            auto_delete_on_idle_s=unless_never(self.auto_delete_on_idle_s),
            forward_to=self.forward_to or None,
            forward_dead_lettered_messages_to=self.forward_dead_lettered_messages_to or None,
            user_metadata=self.user_metadata or None,
        )
        _validate_subscription(description, limits)
        return description


EntityDescription: TypeAlias = QueueDescription | TopicDescription | SubscriptionDescription


def _validate_queue(description: QueueDescription, limits: Limits) -> None:
    """Raises InvalidArgument with what is wrong and what would be right."""
    validate_name(description.name, limits)
    check_lock_duration(description.lock_duration_s, limits)
    check_duplicate_window(description.duplicate_detection_history_time_window_s, limits)
    check_size(description.max_size_in_megabytes, limits)
    check_message_size(description.max_message_size_in_kilobytes, limits)
    check_delivery_count(description.max_delivery_count)
    if description.is_anonymous_accessible:
        raise InvalidArgument("IsAnonymousAccessible cannot be true: every access needs a claim.")
    _check_common(description, limits)
    _check_forwarding(description, limits)
    check_authorization_rules(description.authorization_rules)


def _validate_topic(description: TopicDescription, limits: Limits) -> None:
    validate_name(description.name, limits)
    check_duplicate_window(description.duplicate_detection_history_time_window_s, limits)
    check_size(description.max_size_in_megabytes, limits)
    check_message_size(description.max_message_size_in_kilobytes, limits)
    _check_common(description, limits)
    check_authorization_rules(description.authorization_rules)


def _validate_subscription(description: SubscriptionDescription, limits: Limits) -> None:
    validate_name(description.topic_name, limits)
    validate_subscription_name(description.name)
    check_lock_duration(description.lock_duration_s, limits)
    check_delivery_count(description.max_delivery_count)
    _check_common(description, limits)
    _check_forwarding(description, limits)


def _check_common(description: EntityDescription, limits: Limits) -> None:
    check_time_to_live(description.default_message_time_to_live_s)
    check_idle_time(description.auto_delete_on_idle_s, limits)
    check_user_metadata(description.user_metadata, limits)


def _check_forwarding(description: QueueDescription | SubscriptionDescription, limits: Limits) -> None:
    """What can be said without looking at other entities. Forwarding to itself is allowed: the hop limit ends it."""
    for target in (description.forward_to, description.forward_dead_lettered_messages_to):
        if target is not None:
            validate_name(target, limits)
