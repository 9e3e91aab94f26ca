"""Every metric of a namespace, in the order in which they are told. Each series has the label `process` besides those
named here. docs/metrics.md lists them, and a test compares."""

from __future__ import annotations

from typing import Final

from tandembus.prometheus import COUNTER, GAUGE, HISTOGRAM, Family

BUILD_INFO: Final = Family("tandembus_build_info", GAUGE, "Always 1; the labels say what runs.", ("version",))

# Processes
PROCESS_UP: Final = Family("tandembus_process_up", GAUGE, "Whether the process has answered this scrape.")
PROCESS_RESTARTS: Final = Family("tandembus_process_restarts_total", COUNTER, "Times that it was started again.")
PROCESS_START: Final = Family("tandembus_process_start_time_seconds", GAUGE, "When it began, since 1970 UTC.")
PROCESS_CPU: Final = Family("tandembus_process_cpu_seconds_total", COUNTER, "Processor time, user and system.")
PROCESS_MEMORY: Final = Family("tandembus_process_resident_memory_bytes", GAUGE, "Memory in use.")
PROCESS_FILES: Final = Family("tandembus_process_open_fds", GAUGE, "Open files and sockets.")
LOOP_LAG: Final = Family(
    "tandembus_process_loop_lag_seconds", HISTOGRAM, "How much later than asked for a timer of the event loop came."
)
CONNECTIONS: Final = Family("tandembus_process_connections", GAUGE, "Connections of clients, AMQP and HTTP alike.")
REFUSED_CONNECTIONS: Final = Family(
    "tandembus_process_connections_refused_total",
    COUNTER,
    "Connections that were not accepted, or ended without a valid claim, by reason.",
    ("reason",),
)
REFUSALS: Final = Family(
    "tandembus_process_refusals_total",
    COUNTER,
    "Tokens, links, messages and requests of clients that were refused, by protocol and reason.",
    ("protocol", "reason"),
)
AMQP_CONNECTIONS: Final = Family("tandembus_process_amqp_connections", GAUGE, "Those that speak AMQP.")
LINKS: Final = Family("tandembus_process_links", GAUGE, "Links of clients that send or receive.", ("role",))
CREDIT: Final = Family(
    "tandembus_process_link_credit",
    GAUGE,
    "Messages that links may still carry: senders by our leave, receivers by their own.",
    ("role",),
)

# Operations, as the meter counts them
OPERATIONS: Final = Family(
    "tandembus_operations_total", COUNTER, "Billable operations since the meter began.", ("operation", "reason")
)
OPERATION_MESSAGES: Final = Family(
    "tandembus_operation_messages_total", COUNTER, "Messages in these operations.", ("operation", "reason")
)
OPERATION_BYTES: Final = Family(
    "tandembus_operation_bytes_total", COUNTER, "Bytes in these operations.", ("operation", "reason")
)

# Entities and fragments
ENTITIES: Final = Family("tandembus_entities", GAUGE, "Entities in the namespace.", ("kind",))
FRAGMENTS: Final = Family(
    "tandembus_fragments",
    GAUGE,
    "Fragments in a store: open, closed (known as they are in the store), or not known yet.",
    ("store", "state"),
)
MESSAGES: Final = Family("tandembus_entity_messages", GAUGE, "Messages held, by their state.", ("entity", "state"))
SIZE: Final = Family("tandembus_entity_size_bytes", GAUGE, "Bytes held, of all states.", ("entity",))
OLDEST: Final = Family(
    "tandembus_entity_oldest_message_age_seconds", GAUGE, "Age of the oldest active message.", ("entity",)
)
LOCKED: Final = Family("tandembus_entity_locked_messages", GAUGE, "Messages that somebody has locked.", ("entity",))
ARRIVED: Final = Family("tandembus_entity_messages_in_total", COUNTER, "Messages that came.", ("entity",))
GONE: Final = Family(
    "tandembus_entity_messages_out_total",
    COUNTER,
    "Messages that left: completed, removed, forwarded, expired or dead-lettered.",
    ("entity",),
)
DEAD_LETTERED: Final = Family(
    "tandembus_entity_dead_lettered_total", COUNTER, "Messages that became dead letters.", ("entity",)
)
EXPIRED: Final = Family("tandembus_entity_expired_total", COUNTER, "Messages whose time to live was over.", ("entity",))
REDELIVERED: Final = Family(
    "tandembus_entity_redeliveries_total",
    COUNTER,
    "Deliveries that failed (abandoned, or the lock lapsed), so that the message came again.",
    ("entity",),
)
_FRAGMENT: Final = ("entity", "fragment", "store")
FRAGMENT_MESSAGES: Final = Family(
    "tandembus_fragment_messages", GAUGE, "Active messages of a fragment of a partitioned entity.", _FRAGMENT
)
FRAGMENT_DEAD: Final = Family("tandembus_fragment_dead_letters", GAUGE, "Its dead letters.", _FRAGMENT)
FRAGMENT_OLDEST: Final = Family(
    "tandembus_fragment_oldest_message_age_seconds", GAUGE, "Age of its oldest active message.", _FRAGMENT
)
FRAGMENT_LOCKED: Final = Family("tandembus_fragment_locked_messages", GAUGE, "Its locked messages.", _FRAGMENT)
FRAGMENT_ARRIVED: Final = Family(
    "tandembus_fragment_messages_in_total", COUNTER, "Messages that came to it.", _FRAGMENT
)
FRAGMENT_GONE: Final = Family("tandembus_fragment_messages_out_total", COUNTER, "Messages that left it.", _FRAGMENT)
FRAGMENT_REDELIVERED: Final = Family(
    "tandembus_fragment_redeliveries_total", COUNTER, "Its deliveries that failed.", _FRAGMENT
)

# Stores
STORE_STATE: Final = Family(
    "tandembus_store_state", GAUGE, "1 for the state that the store is in, 0 for the others.", ("store", "state")
)
COMMIT: Final = Family("tandembus_store_commit_seconds", HISTOGRAM, "Time that a commit took.", ("store",))
SYNC: Final = Family(
    "tandembus_store_sync_seconds", HISTOGRAM, "The part of it that waited for the disk to write and sync.", ("store",)
)
BATCH: Final = Family(
    "tandembus_store_commit_operations", HISTOGRAM, "Sends, settlements and removals in one commit.", ("store",)
)
WRITTEN: Final = Family("tandembus_store_written_bytes_total", COUNTER, "Bytes of messages committed.", ("store",))
USED: Final = Family("tandembus_store_used_bytes", GAUGE, "Bytes of its file in use.", ("store",))
FREE: Final = Family("tandembus_store_free_bytes", GAUGE, "How much it can still grow.", ("store",))
RESERVE: Final = Family("tandembus_store_reserve_bytes", GAUGE, "Below this much room sends are refused.", ("store",))
DAMAGED: Final = Family("tandembus_store_damaged_messages_total", COUNTER, "Messages found damaged.", ("store",))

# Pairing, as the namespace sees it
PINGS: Final = Family(
    "tandembus_pairing_pings_total", COUNTER, "Pings that senders of a pair have sent here.", ("result",)
)
BACKLOG: Final = Family(
    "tandembus_pairing_backlog_messages",
    GAUGE,
    "Messages in the backlog queues held here; missing while that is not known of all of them.",
)
BACKLOG_IN: Final = Family(
    "tandembus_pairing_backlog_messages_in_total", COUNTER, "Messages that senders have put into backlog queues here."
)
SYPHONED: Final = Family(
    "tandembus_pairing_syphon_messages_total",
    COUNTER,
    "Messages that syphons have taken out of backlog queues here, or brought home to here.",
    ("direction",),
)
SYPHON_LINKS: Final = Family(
    "tandembus_pairing_syphon_links", GAUGE, "Links of syphons: out of backlog queues, or home.", ("direction",)
)

FAMILIES: Final = tuple(one for one in list(globals().values()) if isinstance(one, Family))
