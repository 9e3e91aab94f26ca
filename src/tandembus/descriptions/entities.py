"""The settings of queues, topics and subscriptions. Durations are seconds; None is never.

What a field means, and what else it is called, stands in `settings`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, TypeAlias

from tandembus.descriptions.access import AuthorizationRule
from tandembus.descriptions.names import subscription_path, validate_name, validate_subscription_name
from tandembus.descriptions.settings import EntityStatus, validated_settings
from tandembus.limits import Limits


class EntityKind(Enum):
    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"


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
        """The address of the entity."""
        return self.name

    def validated(self, limits: Limits) -> QueueDescription:
        """This description with None as the only word for 'never' and 'none', or InvalidArgument."""
        validate_name(self.name, limits)
        return replace(self, **validated_settings(self, limits))

    def max_message_size_bytes(self, limits: Limits) -> int:
        return message_size_bytes(self.max_message_size_in_kilobytes, limits)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's settings; each subscription has its own."""

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
        """The address of the entity."""
        return self.name

    def validated(self, limits: Limits) -> TopicDescription:
        """As for queues."""
        validate_name(self.name, limits)
        return replace(self, **validated_settings(self, limits))

    def max_message_size_bytes(self, limits: Limits) -> int:
        return message_size_bytes(self.max_message_size_in_kilobytes, limits)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """The settings of one subscriber of a topic. Its rules are kept separately, because they change on their own."""

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
        """The address of the entity: `topic/Subscriptions/name`."""
        return subscription_path(self.topic_name, self.name)

    def validated(self, limits: Limits) -> SubscriptionDescription:
        """As for queues."""
        validate_name(self.topic_name, limits)
        validate_subscription_name(self.name)
        return replace(self, **validated_settings(self, limits))


EntityDescription: TypeAlias = QueueDescription | TopicDescription | SubscriptionDescription
CLASSES: Final[Mapping[EntityKind, type[EntityDescription]]] = {
    EntityKind.QUEUE: QueueDescription,
    EntityKind.TOPIC: TopicDescription,
    EntityKind.SUBSCRIPTION: SubscriptionDescription,
}


def message_size_bytes(kilobytes: int | None, limits: Limits) -> int:
    """Returns the largest message of an entity: its own limit, at most the namespace's present one."""
    if kilobytes is None:
        return limits.max_message_size_bytes
    return min(kilobytes * 1024, limits.largest_message_bytes)
