"""The only module that reads attributes that the SDK does not promise: the encoded messages of a batch, the settings of
a client, the condition in an error. `tests/unit/pairing/test_sdk_attributes.py` fails where a version lacks one."""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessagingEntityNotFoundError, ServiceBusError

from tandembus.client import ReceivedMessage
from tandembus.pairing.aliases import MAX_SESSION_ID_LENGTH
from tandembus.pairing.batch import AnyMessage, PairedMessageBatch
from tandembus.pairing.errors import PairingFailed

Sendable: TypeAlias = AnyMessage | Iterable[AnyMessage] | ServiceBusMessageBatch | PairedMessageBatch
"""What the SDK's senders send."""

_SENDABLE_TWICE: Final = (
    ServiceBusMessage,
    PairedMessageBatch,
    ServiceBusMessageBatch,
    list,
    tuple,
    Mapping,
    AmqpAnnotatedMessage,
)
BATCH_OVERHEAD_BYTES: Final = 8
"""Around each message of a batch, as the SDK reckons."""
_ANY_SIZE: Final = 1 << 40
NOT_FOUND: Final = 404


class UnknownSdk(PairingFailed):
    """This version of azure-servicebus lacks something that pairing reads and that the SDK does not promise."""

    def __init__(self) -> None:
        super().__init__(
            "this version of azure-servicebus does not show what pairing reads of it, the settings of clients and the "
            "encoded messages of batches: install azure-servicebus>=7.15,<8, or run `tandembus syphon` elsewhere"
        )


def rereadable(message: Sendable) -> Sendable:
    """The same, unless it can be read only once: it may have to be sent a second time."""
    if isinstance(message, _SENDABLE_TWICE) or not isinstance(message, Iterable):
        return message
    return list(message)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """One message of the caller's, and as the SDK encodes it; of a batch, as it was when it was added."""

    given: AnyMessage
    payload: bytes

    def read(self) -> ReceivedMessage:
        """The message with its keys: session id, partition key and message id."""
        return ReceivedMessage(self.payload)


def outgoing(message: Sendable) -> list[Outgoing]:
    """One by one, whatever they came in. Raises what the SDK raises for anything that is no message."""
    if isinstance(message, PairedMessageBatch):
        return [Outgoing(*one) for one in zip(message.messages, _payloads_in(message.sdk_batch), strict=True)]
    if isinstance(message, ServiceBusMessageBatch):
        payloads = _payloads_in(message)
        messages: list[AnyMessage] = getattr(message, "_messages", None) or [{"body": one} for one in payloads]
        return [Outgoing(*one) for one in zip(messages, payloads, strict=True)]
    given = [_checked(each) for each in (message if isinstance(message, (list, tuple)) else [message])]
    scratch = ServiceBusMessageBatch(max_size_in_bytes=_ANY_SIZE)
    for each in given:
        scratch.add_message(each)
    return [Outgoing(*one) for one in zip(given, _payloads_in(scratch), strict=True)]


class PingKey(NamedTuple):
    value: str
    is_message_id: bool


def ping_key_of(message: Sendable) -> PingKey | None:
    """Returns the key that chooses the fragment of the first message, and so of a ping for it: session id, else
    partition key, else message id. None where there is no message, or no key that can be a session id."""
    try:
        first = outgoing(message[:1] if isinstance(message, (list, tuple)) else message)[0].read()
        keys = (first.session_id, first.partition_key, first.message_id)
        key = PingKey(next(str(key) for key in keys if key is not None), keys[:2] == (None, None))
    except Exception:  # Whatever is wrong with the message, its failure is what the caller gets.
        return None
    return key if len(key.value) <= MAX_SESSION_ID_LENGTH else None


def _checked(message: object) -> AnyMessage:
    """Raises what the SDK raises for anything else, and in its words."""
    if isinstance(message, Mapping):
        with suppress(TypeError):
            ServiceBusMessage(**message)
            return message
    elif isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage)):
        return message
    raise TypeError(
        "Only AmqpAnnotatedMessage, ServiceBusMessage instances or Mappings representing messages are supported. "
        f"Received instead: {type(message).__name__}"
    )


def _payloads_in(batch: ServiceBusMessageBatch) -> Sequence[bytes]:
    inner: Any = getattr(batch, "_message", None)
    payloads = inner[5] if isinstance(inner, list) and len(inner) > 5 else None
    if not isinstance(payloads, list) or len(payloads) != len(batch):
        raise UnknownSdk
    return [bytes(payload) for payload in payloads]


def can_be_encoded(message: Sendable) -> bool:
    """Whether the SDK is able to write it down at all, whoever it is sent to."""
    try:
        outgoing(message)
    except Exception:
        return False
    return True


def described(kind: type) -> str:
    """For messages: the class, and where users import it from."""
    return f"{kind.__module__.split('._')[0]}.{kind.__name__}"


def endpoint_of(client: Any) -> str:
    """Where a client connects to. Over TLS the SDK leaves out the port, unless it was given as a custom endpoint."""
    custom: object = getattr(client, "_custom_endpoint_address", None)
    host: str = client.fully_qualified_namespace
    return f"{host} ({custom})".lower() if custom else host.lower()


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client of the SDK was made with."""

    credential: Any
    config: Any
    connection_verify: str | None
    ssl_context: ssl.SSLContext | None
    custom_endpoint_address: str | None
    entity_name: str | None


def settings_of(client: Any) -> ClientSettings:
    """Raises `UnknownSdk`. The SDK has had these attributes since version 7.12."""
    try:
        return ClientSettings(**{name: getattr(client, f"_{name}") for name in ClientSettings.__dataclass_fields__})
    except AttributeError as error:
        raise UnknownSdk from error


def condition_of(error: ServiceBusError) -> str | None:
    """The service's own word for an error; None where the SDK does not pass it on."""
    condition: object = getattr(error, "_condition", None)
    return condition if isinstance(condition, str) else None


def not_found_in(error: BaseException) -> str | None:
    """What the service said, if there is no such entity. It is asked for a token first, and says so there already: the
    SDK makes an authentication error of it."""
    refusal: Any = getattr(error, "inner_exception", None)
    if isinstance(error, MessagingEntityNotFoundError) or getattr(refusal, "status_code", None) != NOT_FOUND:
        return None
    description: object = getattr(refusal, "status_description", None)
    return description.decode("utf-8", "replace") if isinstance(description, bytes) else str(description or error)


def is_of_the_token(error: BaseException) -> bool:
    """Whether it went wrong when the token was given to the service. The SDK makes an authentication error of that, or
    a connection error where the client has a custom endpoint."""
    inner: object = getattr(error, "inner_exception", None)
    return any(kind.__name__ == "AuthenticationException" for kind in type(inner).__mro__)


def token_status_in(error: BaseException) -> int | None:
    """Returns the status with which the service refused the token, if that was the failure."""
    status: object = getattr(getattr(error, "inner_exception", None), "status_code", None)
    return status if is_of_the_token(error) and isinstance(status, int) else None
