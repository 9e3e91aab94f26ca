"""What a fragment needs to know of its entity's description and of the namespace's limits, in plain numbers."""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from tandembus.message import compared
from tandembus.store.messaging_store import BLOCK_SIZE


@final
class FragmentSettings:
    __slots__ = (
        "block_size",
        "commit_bytes",
        "commit_operations",
        "dead_letter_expired",
        "dead_letter_filter_errors",
        "default_ttl_ms",
        "duplicate_window_ms",
        "forward_dead_letters_to",
        "forward_to",
        "ignores_key_case",
        "is_partitioned",
        "lock_duration_s",
        "max_delivery_count",
        "max_locks",
        "max_message_bytes",
        "max_properties_bytes",
        "max_session_numbers",
        "max_sessions",
        "max_size_bytes",
        "may_have_large",
        "path",
        "requires_session",
        "window_bytes",
        "window_messages",
    )

    def __init__(
        self,
        lock_duration_s: float = 60.0,
        max_delivery_count: i64 = 10,
        default_ttl_ms: i64 = 0,
        dead_letter_expired: bool = False,
        max_size_bytes: i64 = 1 << 30,
        max_locks: i64 = 50_000,
        commit_operations: i64 = 4096,
        commit_bytes: i64 = 4 << 20,
        window_messages: i64 = 1000,
        window_bytes: i64 = 4 << 20,
        block_size: i64 = BLOCK_SIZE,
        max_properties_bytes: i64 = 65_536,
        requires_session: bool = False,
        duplicate_window_ms: i64 = 0,
        forward_to: str = "",
        forward_dead_letters_to: str = "",
        dead_letter_filter_errors: bool = False,
        max_sessions: i64 = 65_536,
        max_session_numbers: i64 = 1_000,
        path: str = "",
        max_message_bytes: i64 = 1 << 62,
        is_partitioned: bool = False,
        ignores_key_case: bool = False,
        may_have_large: bool = False,
    ) -> None:
        self.lock_duration_s: float = lock_duration_s
        self.max_delivery_count: i64 = max_delivery_count
        self.default_ttl_ms: i64 = default_ttl_ms
        """0: messages live for ever unless they say otherwise."""
        self.dead_letter_expired: bool = dead_letter_expired
        self.max_size_bytes: i64 = max_size_bytes
        self.max_locks: i64 = max_locks
        self.commit_operations: i64 = commit_operations
        self.commit_bytes: i64 = commit_bytes
        self.window_messages: i64 = window_messages
        self.window_bytes: i64 = window_bytes
        self.block_size: i64 = block_size
        self.max_properties_bytes: i64 = max_properties_bytes
        self.requires_session: bool = requires_session
        self.max_sessions: i64 = max_sessions
        """Sessions in memory; the rest stays in the columns until some of these are gone."""
        self.max_session_numbers: i64 = max_session_numbers
        """Messages known of one session; the rest is searched for when these are used up."""
        self.duplicate_window_ms: i64 = duplicate_window_ms
        """How long a message id is remembered; 0: duplicates are not looked for."""
        self.is_partitioned: bool = is_partitioned
        """Whether the entity has other fragments beside this one: a message id counts under its key then."""
        self.ignores_key_case: bool = ignores_key_case
        """Whether SessionIds and PartitionKeys are compared without regard to case."""
        self.forward_to: str = forward_to
        """The path of the entity that gets this one's messages; empty: its receivers do."""
        self.forward_dead_letters_to: str = forward_dead_letters_to
        self.dead_letter_filter_errors: bool = dead_letter_filter_errors
        """A subscription's: what its rules cannot be evaluated for goes to its dead letters."""
        self.max_message_bytes: i64 = max_message_bytes
        """For what is forwarded; what clients send is measured where it comes in."""
        self.may_have_large: bool = may_have_large
        """Whether there may be large messages, which are read one by one, and only for who has room for them."""
        self.path: str = path
        """The entity's name, for messages that tell where they come from."""

    def key_of(self, session_id: str) -> str:
        """The session's id as it is compared."""
        return compared(session_id, self.ignores_key_case)
