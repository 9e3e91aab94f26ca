"""One AMQP connection as a pure state machine, for servers and clients."""

from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_OUTCOME as ACCEPTED,
)
from tandembus.amqp.encoding.delivery_states import (
    ACCEPTED_STATE,
    MODIFIED_STATE,
    REJECTED_STATE,
    RELEASED_STATE,
    AmqpError,
    Outcome,
    declared_state,
    modified_state,
    rejected_state,
    transactional_state,
)
from tandembus.amqp.encoding.terminus import Terminus
from tandembus.amqp.engine.amqp_session import AmqpSession
from tandembus.amqp.engine.connection import Connection
from tandembus.amqp.engine.events import (
    ConnectionClosed,
    DeliveryReceived,
    DeliveryTooLarge,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkAttaching,
    LinkDetached,
    LinkFlow,
    Opened,
    SaslInit,
    SaslOutcome,
    SessionBegun,
    SessionEnded,
    SettlementConfirmed,
    WorkDropped,
)
from tandembus.amqp.engine.link import IncomingLink, Link, OutgoingLink
from tandembus.amqp.engine.sasl import plain_response, read_plain_response
from tandembus.amqp.engine.settings import MAX_TRANSFERS_BEYOND_CREDIT, EngineSettings
from tandembus.amqp.engine.unsettled import OutgoingDelivery

__all__ = [
    "ACCEPTED",
    "ACCEPTED_STATE",
    "MAX_TRANSFERS_BEYOND_CREDIT",
    "MODIFIED_STATE",
    "REJECTED_STATE",
    "RELEASED_STATE",
    "AmqpError",
    "AmqpSession",
    "Connection",
    "ConnectionClosed",
    "DeliveryReceived",
    "DeliveryTooLarge",
    "DispositionReceived",
    "EngineSettings",
    "Event",
    "IncomingLink",
    "Link",
    "LinkAttached",
    "LinkAttaching",
    "LinkDetached",
    "LinkFlow",
    "Opened",
    "Outcome",
    "OutgoingDelivery",
    "OutgoingLink",
    "SaslInit",
    "SaslOutcome",
    "SessionBegun",
    "SessionEnded",
    "SettlementConfirmed",
    "Terminus",
    "WorkDropped",
    "declared_state",
    "modified_state",
    "plain_response",
    "read_plain_response",
    "rejected_state",
    "transactional_state",
]
