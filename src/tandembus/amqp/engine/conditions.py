"""The error conditions that the engine itself raises, and how it raises them."""

from __future__ import annotations

from typing import Final

from tandembus.amqp.encoding.delivery_states import AmqpError

DECODE_ERROR: Final = "amqp:decode-error"
NOT_ALLOWED: Final = "amqp:not-allowed"
ILLEGAL_STATE: Final = "amqp:illegal-state"
INVALID_FIELD: Final = "amqp:invalid-field"
RESOURCE_LIMIT_EXCEEDED: Final = "amqp:resource-limit-exceeded"
CONNECTION_FORCED: Final = "amqp:connection:forced"
FRAMING_ERROR: Final = "amqp:connection:framing-error"
HANDLE_IN_USE: Final = "amqp:session:handle-in-use"
UNATTACHED_HANDLE: Final = "amqp:session:unattached-handle"
ERRANT_LINK: Final = "amqp:session:errant-link"
LINK_STOLEN: Final = "amqp:link:stolen"
TRANSFER_LIMIT_EXCEEDED: Final = "amqp:link:transfer-limit-exceeded"


class ProtocolViolation(Exception):
    """The peer did what ends the connection. Never leaves the engine."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.error: Final = AmqpError(condition, description)
