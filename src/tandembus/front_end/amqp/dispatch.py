"""The hot events of a connection, handled without leaving compiled code; the rest goes back to the driver."""

from __future__ import annotations

from tandembus.amqp.engine.events import (
    DeliveryReceived,
    DispositionReceived,
    Event,
)
from tandembus.front_end.amqp.receiver_link import ReceiverLink
from tandembus.front_end.amqp.sender_link import SenderLink


def dispatch(events: list[Event]) -> list[Event]:
    """Starts work, never waits: so many sends share one commit."""
    rest: list[Event] = []
    for event in events:
        if isinstance(event, DeliveryReceived):
            sender = event.link.context
            if isinstance(sender, SenderLink):
                sender.received(event)
                continue
        elif isinstance(event, DispositionReceived):
            outcome, settled = event.outcome, event.settled
            for delivery in event.deliveries:
                receiver = delivery.link.context
                if isinstance(receiver, ReceiverLink):
                    receiver.settle(delivery, outcome, settled)
            continue
        rest.append(event)
    return rest
