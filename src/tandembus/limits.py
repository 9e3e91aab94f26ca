"""Every limit of a namespace, by name.

A limit that is not a setting cannot be raised by the person who needs more, and cannot be lowered by a test
that wants to see it reached. Each one says what it is for; `docs/configuration.md` lists them all, and a test
compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB
DAY_S: Final = 86_400.0

T = TypeVar("T")


def setting(
    default: T,
    about: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    is_secret: bool = False,
) -> T:
    """A field that can be set from outside, with what a reader and a validator must know about it."""
    metadata: Mapping[str, object] = {
        "about": about,
        "minimum": minimum,
        "maximum": maximum,
        "choices": choices,
        "is_secret": is_secret,
    }
    value: T = field(default=default, metadata=metadata, repr=not is_secret)
    return value


@dataclass(frozen=True, slots=True)
class Limits:
    """What a namespace allows; the defaults are those of the service's Standard tier where it has one."""

    # Messages
    max_message_size_bytes: int = setting(
        256 * KIB,
        "largest message or batch, all sections together, of an entity that has no MaxMessageSizeInKilobytes",
        minimum=KIB,
        maximum=100 * MIB,
    )
    largest_message_size_bytes: int | None = setting(
        None,
        "the most that MaxMessageSizeInKilobytes of an entity may be, in bytes; none = max_message_size_bytes",
        minimum=KIB,
        maximum=100 * MIB,
    )
    large_message_memory_bytes: int = setting(
        256 * MIB,
        "bytes of messages of more than 1 MiB that a process holds; above it clients that send them are not read, "
        "and no more of them are delivered; one in each direction always goes on",
        minimum=KIB,
    )
    max_header_size_bytes: int = setting(
        64 * KIB, "header, annotations and properties of a message together", minimum=KIB
    )
    max_properties_size_bytes: int = setting(64 * KIB, "application properties of a message together", minimum=KIB)
    max_batch_messages: int = setting(4_500, "messages in one batch", minimum=1)
    max_key_length: int = setting(
        128, "characters of a message id, session id or partition key", minimum=1, maximum=65_535
    )

    max_session_state_bytes: int = setting(256 * KIB, "largest state of a session", minimum=KIB, maximum=3 * MIB)

    # Entities
    max_entities: int = setting(10_000, "queues and topics in the namespace", minimum=1)
    max_partitioned_entities: int = setting(100, "partitioned queues and topics in the namespace", minimum=0)
    max_subscriptions: int = setting(2_000, "subscriptions of one topic", minimum=1)
    max_sql_rules: int = setting(2_000, "rules with a SQL filter of one topic's subscriptions together", minimum=1)
    max_correlation_rules: int = setting(
        100_000, "rules with a correlation filter of one topic's subscriptions together", minimum=1
    )
    max_plain_rules: int = setting(100, "rules with a true or false filter of one subscription", minimum=1)
    max_sql_length: int = setting(
        1024, "characters of a SQL expression, and of a value in a rule", minimum=1, maximum=1024
    )
    max_rule_values: int = setting(128, "parameters or properties of one rule", minimum=0)
    max_forward_hops: int = setting(4, "how often one message is forwarded in a row", minimum=1, maximum=255)
    size_choices_megabytes: tuple[int, ...] = setting(
        (1024, 2048, 3072, 4096, 5120), "what MaxSizeInMegabytes of an entity may be", minimum=1
    )
    max_name_length: int = setting(260, "characters of an entity's path", minimum=1, maximum=400)
    max_user_metadata_length: int = setting(1024, "characters of an entity's UserMetadata", minimum=0)
    min_lock_duration_s: float = setting(5.0, "shortest LockDuration of an entity", minimum=0.001)
    max_lock_duration_s: float = setting(300.0, "longest LockDuration of an entity", minimum=0.001)
    min_auto_delete_on_idle_s: float = setting(300.0, "shortest AutoDeleteOnIdle of an entity", minimum=0.001)
    min_duplicate_window_s: float = setting(20.0, "shortest duplicate detection window", minimum=0.001)
    max_duplicate_window_s: float = setting(7 * DAY_S, "longest duplicate detection window", minimum=0.001)

    # Fragments
    window_messages: int = setting(1_000, "messages a fragment keeps ready in memory", minimum=1)
    window_bytes: int = setting(4 * MIB, "bytes a fragment keeps ready in memory", minimum=1)
    broker_window_bytes: int = setting(256 * MIB, "bytes all fragments of a broker keep ready in memory", minimum=1)
    max_locks: int = setting(50_000, "messages of one fragment locked at the same time", minimum=1)
    fragment_idle_s: float = setting(60.0, "an unused fragment leaves the memory after this time", minimum=0.01)
    max_duplicate_ids: int = setting(
        2_000_000,
        "message ids remembered by all entities with duplicate detection; above it sends to these get ServerBusy",
        minimum=1,
    )
    uncommitted_bytes_limit: int = setting(
        64 * MIB,
        "bytes waiting for commit, per namespace and per fragment; above it sends get ServerBusy",
        minimum=1,
    )
    operations_per_second: int | None = setting(
        None, "operations per second before ServerBusy is answered; none = no limit", minimum=1
    )
    commit_outage_s: float = setting(
        5.0, "without a successful commit for so long, a fragment counts as unavailable", minimum=0.01
    )
    operation_timeout_s: float = setting(60.0, "an operation without an answer fails after this", minimum=0.01)
    max_peek_bytes: int = setting(256 * KIB, "bytes in one answer to a peek (at least one message)", minimum=1)
    max_management_messages: int = setting(
        4_000, "messages in one management request (peek, batch delete, schedule)", minimum=1
    )

    # Partitioned entities
    receive_cache_bytes: int = setting(
        MIB, "bytes of messages that a front end keeps ready for the receivers of one entity or sub-queue", minimum=1
    )
    receive_cache_s: float = setting(
        10.0, "a message kept ready goes back after this time, or a quarter of its lock", minimum=0.01
    )
    drain_wait_s: float = setting(0.15, "an empty receive waits no longer than this for a slow fragment", minimum=0.001)

    # Store
    commit_mode: str = setting(
        "auto", "where commits run: chosen by measuring, or fixed", choices=("auto", "loop", "thread")
    )
    loop_commit_limit_s: float = setting(
        0.002,
        "in mode auto, commits shorter than this run in the event loop, others in a thread",
        minimum=0.0,
    )
    commit_bytes: int = setting(4 * MIB, "bytes in one group commit (at least one operation)", minimum=1)
    commit_operations: int = setting(4_096, "operations in one group commit", minimum=1)
    store_map_size_bytes: int = setting(
        1024 * GIB, "address space of the messaging store: its upper size", minimum=64 * MIB
    )
    catalog_map_size_bytes: int = setting(256 * MIB, "address space of the catalog: its upper size", minimum=MIB)
    store_reserve_bytes: int | None = setting(
        None,
        "room kept for receiving and settling when the disk fills up; none = 5 % of the volume",
        minimum=0,
    )
    min_store_reserve_bytes: int = setting(8 * MIB, "those 5 % are never less than this", minimum=0)
    max_store_reserve_bytes: int = setting(256 * MIB, "those 5 % are never more than this", minimum=0)
    settling_bytes: int = setting(MIB, "room that no message may take: even a deletion writes first", minimum=64 * KIB)

    # Channels between front ends and message brokers
    in_doubt_wait_s: float = setting(
        5.0,
        "how long an operation waits for the return of a message broker or store, to learn what became of it",
        minimum=0.0,
    )
    fragment_timeout_s: float = setting(
        15.0, "an operation that a fragment does not answer within this is of unknown outcome", minimum=0.01
    )
    channel_window_bytes: int = setting(
        16 * MIB,
        "bytes of sends of one front end that a message broker takes before it has answered them",
        minimum=KIB,
    )
    channel_waiting_bytes: int = setting(
        64 * MIB, "bytes of sends that wait in a front end for one message broker; more are refused", minimum=KIB
    )
    channel_unsent_bytes: int = setting(
        4 * MIB, "bytes that wait in a message broker for one front end to read them", minimum=KIB
    )
    consumer_unreported_bytes: int = setting(
        1 * MIB, "bytes of messages that a front end keeps ready for one receiver of a message broker", minimum=KIB
    )

    # Connections
    max_connections: int = setting(10_000, "connections at the same time", minimum=1)
    max_connections_per_address: int = setting(
        5_000, "connections from one network address at the same time", minimum=1
    )
    max_unauthenticated_connections: int = setting(
        1_000, "connections at the same time that have not shown a valid claim yet", minimum=1
    )
    max_unauthenticated_connections_per_address: int | None = setting(
        None, "those of one network address; none = a tenth of them, and no cap for loopback addresses", minimum=1
    )
    pre_auth_timeout_s: float = setting(20.0, "a connection without a valid claim is closed after this", minimum=0.01)
    pre_auth_bytes: int = setting(
        256 * KIB, "bytes read from a connection before a valid claim, without the bodies of HTTP requests", minimum=KIB
    )
    max_amqp_sessions_per_connection: int = setting(256, "AMQP sessions of one connection", minimum=1, maximum=65_535)
    max_links_per_connection: int = setting(1_000, "links of one connection", minimum=1)
    max_frame_size_bytes: int = setting(65_536, "largest AMQP frame taken", minimum=512, maximum=16 * MIB)
    link_credit: int = setting(1_000, "messages a sender may have under way", minimum=1, maximum=100_000)
    unacknowledged_bytes_per_connection: int = setting(
        8 * MIB,
        "bytes sent by a client and not yet answered; above it the connection is not read",
        minimum=KIB,
    )
    unsent_bytes_per_connection: int = setting(
        1 * MIB, "bytes waiting for a slow reader; above it nothing more is delivered to it", minimum=KIB
    )
    max_websocket_message_bytes: int = setting(
        16 * MIB, "largest message of a WebSocket, which is passed on as it comes and never kept whole", minimum=KIB
    )
    websocket_ping_interval_s: float = setting(
        30.0, "how often a WebSocket is pinged, so that proxies do not forget it", minimum=0.01
    )
    idle_timeout_s: float = setting(
        240.0, "a silent connection is closed; told to the client, who keeps it alive", minimum=1.0
    )
    link_idle_timeout_s: float | None = setting(
        None, "a link without any activity is detached after this; none = never", minimum=1.0
    )
    session_detach_delay_s: float = setting(
        5.0, "a receiver whose session lock has lapsed is detached after this, and gets nothing meanwhile", minimum=0.0
    )
    token_check_interval_s: float = setting(
        10.0, "how often live links are compared with their claims", minimum=0.01, maximum=30.0
    )
    max_token_size_bytes: int = setting(16 * KIB, "largest token that is looked at", minimum=256)
    max_token_lifetime_s: float = setting(
        3_650 * DAY_S, "a token that expires later than this from now is refused", minimum=1.0
    )

    # Transactions
    max_transaction_messages: int = setting(100, "messages sent and settled in one transaction", minimum=1)
    max_transaction_bytes: int = setting(4 * MIB, "bytes that one transaction gathers", minimum=KIB)
    transaction_timeout_s: float = setting(
        120.0, "a transaction that is not discharged after this is rolled back", minimum=0.01
    )
    max_transactions_per_connection: int = setting(
        100, "transactions of one connection open at the same time", minimum=1
    )
    open_transaction_bytes: int = setting(
        64 * MIB, "bytes that all open transactions gather; above it their sends get ServerBusy", minimum=KIB
    )

    # Reservations
    max_owners: int = setting(64, "owners of reservations of one entity or sub-queue", minimum=1, maximum=1024)
    max_owner_length: int = setting(128, "characters of the name of an owner", minimum=1, maximum=1024)
    max_reserve_messages: int = setting(100_000, "messages reserved by one request", minimum=1)
    max_ranges: int = setting(4_096, "ranges of numbers in one request to settle or release", minimum=4_096)
    max_browse_bytes: int = setting(512 * KIB, "bytes in one answer to a browse (at least one message)", minimum=1)

    # HTTP
    max_management_body_bytes: int = setting(MIB, "body of an administration request", minimum=KIB)
    max_http_header_bytes: int = setting(32 * KIB, "all headers of an HTTP request", minimum=KIB)
    max_receive_wait_s: float = setting(300.0, "longest wait of a receive over HTTP", minimum=0.0)
    max_page_size: int = setting(100, "entities in one page of a list", minimum=1)
    max_xml_depth: int = setting(32, "nesting of elements in an XML body", minimum=4, maximum=1_000)

    # Faults
    max_faults: int = setting(100, "injected faults at the same time", minimum=0)

    # Metrics
    max_metrics_entities: int = setting(
        500, "entities with metrics of their own; the others are summed up as `$other`", minimum=0
    )
    max_metrics_fragments: int = setting(
        1_600, "fragments of partitioned entities with metrics of their own; 0 = none", minimum=0
    )

    # Meter
    meter_file_bytes: int = setting(16 * MIB, "a meter file is rolled at this size", minimum=KIB)
    meter_files: int = setting(64, "meter files kept; the oldest go first", minimum=1)

    # Audit
    audit_file_bytes: int = setting(16 * MIB, "an audit file is rolled at this size", minimum=KIB)
    audit_files: int = setting(64, "audit files kept of each store; the oldest go first", minimum=2)

    @property
    def largest_message_bytes(self) -> int:
        """The largest message that any entity may take."""
        return max(self.max_message_size_bytes, self.largest_message_size_bytes or 0)
