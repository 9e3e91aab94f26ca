"""How many operations a pair of namespaces takes: while nothing happens, and through an outage.

Whole numbers only; `prices` makes money of them. The terms are those of the meter (`slot.py`), so that what was worked
out beforehand can be laid beside what was counted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tandembus.metering.prices import Counting
from tandembus.metering.slot import operations_for

POLL_S: Final = 15 * 60
"""How long the syphon's receive waits for the first message of a backlog queue."""
HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
FAILOVER_INTERVAL_S: Final = 60
"""How long senders try the primary before pings begin, by default."""
RENEWAL_S: Final = 20
"""The lock of a message in a backlog queue lasts a minute, and the syphon renews it after a third of that: were it
late, another syphon would send the message, too."""
CHARGES: Final = (
    "1 send to the backlog",
    "2 receive from the backlog",
    "3 send to the primary",
    "4 receive from the primary",
)
"""Of a message that comes through the backlog, as every bill names them."""


def idle_receives(syphons: int, backlog_queues: int, duration_s: int) -> int:
    """Receives that end with nothing, while no backlog queue has a message."""
    return syphons * backlog_queues * (duration_s // POLL_S)


def pings_sent(
    entities: int, clients: int, outage_s: int, interval_s: int, failover_interval_s: int = FAILOVER_INTERVAL_S
) -> int:
    """The most that a service could charge. Each client pings each of its entities that is unavailable: at once when it
    fails over, then once per interval, up to the ping that is accepted, which is the first one after the outage. With
    both intervals at their default of a minute that is one for each minute of the outage."""
    failed_over_s = outage_s - failover_interval_s
    if outage_s == 0 or failed_over_s < 0:
        return 0
    return entities * clients * (1 + math.ceil(failed_over_s / interval_s))


def pings_accepted(entities: int, clients: int, outage_s: int, failover_interval_s: int = FAILOVER_INTERVAL_S) -> int:
    """Returns how many pings are metered: the last of each client to each entity. Earlier ones are refused or lost."""
    return entities * clients if 0 < outage_s >= failover_interval_s else 0


def setup_operations(backlog_queues: int) -> int:
    """At most, for one pairing: a look at what is there, then each queue looked for and made. `pair_namespace` does
    without that first look."""
    return 1 + backlog_queues + backlog_queues


def renewals(messages_in_hand: int, copying_s: int) -> int:
    """Of the locks of backlog messages that are not brought home at once."""
    return messages_in_hand * (copying_s // RENEWAL_S)


def sent(messages: int, size_bytes: int, batch_size: int, counting: Counting) -> int:
    """Operations of sending so many messages of one size, in batches."""
    if counting.batch == "per_message":
        return messages * operations_for(size_bytes, counting.unit_bytes)
    batches, rest = divmod(messages, batch_size)
    whole = batches * operations_for(batch_size * size_bytes, counting.unit_bytes)
    return whole + (operations_for(rest * size_bytes, counting.unit_bytes) if rest else 0)


def received(messages: int, size_bytes: int, counting: Counting) -> int:
    """Operations of receiving them, settlements apart."""
    return messages * operations_for(size_bytes, counting.unit_bytes)


@dataclass(frozen=True, slots=True)
class Diverted:
    """Operations of messages that came through the backlog, charge by charge."""

    sends_to_backlog: int
    receives_from_backlog: int
    sends_to_primary: int
    receives_from_primary: int
    backlog_settlements: int
    primary_settlements: int
    size_bytes: int
    """Of all messages together: what crosses once more on its way out of the secondary's region, and once more on its
    way into the primary's."""

    @property
    def charges(self) -> tuple[int, int, int, int]:
        """In the order of `CHARGES`."""
        return self.sends_to_backlog, self.receives_from_backlog, self.sends_to_primary, self.receives_from_primary

    @property
    def transfers(self) -> int:
        """The four charges."""
        return self.sends_to_backlog + self.receives_from_backlog + self.normal_transfers

    @property
    def normal_transfers(self) -> int:
        """What the same messages take without an outage: one send, one receive."""
        return self.sends_to_primary + self.receives_from_primary

    @property
    def further_transfers(self) -> int:
        return self.transfers - self.normal_transfers

    @property
    def settlements(self) -> int:
        """One complete beside each receive; told apart, since they do not depend on the size."""
        return self.backlog_settlements + self.primary_settlements

    @property
    def operations(self) -> int:
        return self.transfers + self.settlements

    @property
    def normal_operations(self) -> int:
        return self.normal_transfers + self.primary_settlements

    @property
    def further_operations(self) -> int:
        """What the detour takes, settlements included."""
        return self.operations - self.normal_operations


def diverted(
    messages: int, size_bytes: int, counting: Counting, *, batch_size: int = 1, subscriptions: int = 1
) -> Diverted:
    """`subscriptions`: how often the primary delivers each; of a queue, once."""
    sends = sent(messages, size_bytes, batch_size, counting)
    receives = received(messages, size_bytes, counting)
    return Diverted(
        sends_to_backlog=sends,
        receives_from_backlog=receives,
        sends_to_primary=sends,
        receives_from_primary=receives * subscriptions,
        backlog_settlements=messages,
        primary_settlements=messages * subscriptions,
        size_bytes=messages * size_bytes,
    )
