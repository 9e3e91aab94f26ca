"""From what an entity is asked to be to what its fragment needs to know."""

from __future__ import annotations

from collections.abc import Iterable

from tandembus.broker.settings import FragmentSettings
from tandembus.descriptions import EntityDescription, QueueDescription, SubscriptionDescription, TopicDescription
from tandembus.large_messages import LARGE_BYTES
from tandembus.limits import Limits
from tandembus.namespace.entries import Entry, SubscriptionEntry
from tandembus.namespace.partitioning import PartitionSettings

MIB = 1024 * 1024
UNBOUNDED = 1 << 62
"""A subscription's size: the topic's is what is limited, and holds the bodies."""


def fragment_settings(entry: Entry, limits: Limits) -> FragmentSettings:
    description = entry.description
    settings = _common_settings(description, limits)
    settings.ignores_key_case = entry.ignores_key_case
    if isinstance(description, SubscriptionDescription):
        settings.dead_letter_filter_errors = description.dead_lettering_on_filter_evaluation_exceptions
    else:
        settings.max_size_bytes = description.max_size_in_megabytes * MIB
        settings.duplicate_window_ms = _duplicate_window_ms(description)
        settings.is_partitioned = description.enable_partitioning
        settings.max_message_bytes = description.max_message_size_bytes(limits)
    if not isinstance(description, TopicDescription):
        settings.lock_duration_s = float(description.lock_duration_s)
        settings.max_delivery_count = description.max_delivery_count
        settings.dead_letter_expired = description.dead_lettering_on_message_expiration
        settings.requires_session = description.requires_session
        if description.status.can_receive:  # forwarding is a receiver, too: it pauses with all others
            settings.forward_to = description.forward_to or ""
            settings.forward_dead_letters_to = description.forward_dead_lettered_messages_to or ""
    return settings


def partition_settings(
    entry: Entry, limits: Limits, subscriptions: Iterable[SubscriptionEntry] = ()
) -> PartitionSettings:
    """What whoever spreads the entity over its fragments needs to know. `subscriptions`: of a topic."""
    description = entry.description
    settings = PartitionSettings(
        ignores_key_case=entry.ignores_key_case,
        cache_bytes=limits.receive_cache_bytes,
        cache_keep_s=float(limits.receive_cache_s),
        drain_wait_s=float(limits.drain_wait_s),
    )
    if not isinstance(description, SubscriptionDescription):
        settings.requires_duplicate_detection = description.requires_duplicate_detection
    if not isinstance(description, TopicDescription):
        settings.requires_session = settings.has_sessions = description.requires_session
        settings.lock_duration_s = float(description.lock_duration_s)
    for subscription in subscriptions:
        settings.has_sessions = settings.has_sessions or subscription.description.requires_session
    return settings


def _common_settings(description: EntityDescription, limits: Limits) -> FragmentSettings:
    ttl = description.default_message_time_to_live_s
    return FragmentSettings(
        default_ttl_ms=int(ttl * 1000) if ttl is not None else 0,
        max_size_bytes=UNBOUNDED,
        max_locks=limits.max_locks,
        commit_operations=limits.commit_operations,
        commit_bytes=limits.commit_bytes,
        window_messages=limits.window_messages,
        window_bytes=limits.window_bytes,
        max_properties_bytes=limits.max_properties_size_bytes,
        path=description.path,
        may_have_large=limits.largest_message_bytes > LARGE_BYTES,
    )


def _duplicate_window_ms(description: QueueDescription | TopicDescription) -> int:
    if not description.requires_duplicate_detection:
        return 0
    return int(description.duplicate_detection_history_time_window_s * 1000)
