"""The few places where pairing needs more of the SDK than it promises. Should one of them be gone, it does without;
except for the bytes of messages in a batch, which nothing can stand in for: `UnknownSdk` says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
)

from tandembus.client import ReceivedMessage
from tandembus.pairing.aliases import MAX_SESSION_ID_LENGTH
from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.errors import PairingError
from tandembus.pairing.transfer import AnyMessage

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
BATCH_FIELDS: Final = ("_amqp_transport", "_count", "_size")
BATCH_OVERHEAD_BYTES: Final = 8
"""Around each message of a batch, as the SDK reckons."""
_ANY_SIZE: Final = 1 << 40
NOT_FOUND: Final = 404


class UnknownSdk(PairingError):
    """This version of azure-servicebus lacks something that pairing needs and that the SDK does not promise."""

    def __init__(self) -> None:
        super().__init__(
            "this version of azure-servicebus lacks what pairing needs for batches and for a syphon: send lists in "
            "place of batches, and run `tandembus syphon` in place of enable_syphon"
        )


def rereadable(message: Sendable) -> Sendable:
    """The same, unless it can be read only once: it may have to be sent a second time."""
    if isinstance(message, _SENDABLE_TWICE) or not isinstance(message, Iterable):
        return message
    return list(message)


@dataclass(frozen=True, slots=True, eq=False)
class Outgoing:
    """One message of the caller's. `payload`: as the SDK wrote it down when it was added to a batch; whatever happened
    to the object since then, that is what is to be sent."""

    given: AnyMessage
    payload: bytes | None = None

    def read(self) -> ServiceBusMessage | ReceivedMessage:
        """The message with its keys: session id, partition key and message id."""
        if self.payload is not None:
            return ReceivedMessage(self.payload)
        if isinstance(self.given, Mapping):
            return ServiceBusMessage(**self.given)
        if isinstance(self.given, ServiceBusMessage):
            return self.given
        return ServiceBusMessage(None, raw_amqp_message=self.given, message=None)


def outgoing(message: Sendable) -> list[Outgoing]:
    """One by one, whatever they came in."""
    if isinstance(message, PairedMessageBatch):
        return [Outgoing(*one) for one in zip(message.messages, _payloads_in(message.sdk_batch), strict=True)]
    if isinstance(message, ServiceBusMessageBatch):
        payloads = _payloads_in(message)
        messages: list[AnyMessage] = getattr(message, "_messages", None) or [{"body": one} for one in payloads]
        return [Outgoing(*one) for one in zip(messages, payloads, strict=True)]
    if isinstance(message, (list, tuple)):
        return [_one(each) for each in message]
    return [_one(message)]


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


def _one(message: object) -> Outgoing:
    """Raises what the SDK raises for anything else, and in its words."""
    if isinstance(message, Mapping):
        with suppress(TypeError):
            ServiceBusMessage(**message)
            return Outgoing(message)
    elif isinstance(message, (ServiceBusMessage, AmqpAnnotatedMessage)):
        return Outgoing(message)
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


def fill(batch: ServiceBusMessageBatch, payloads: Sequence[bytes]) -> None:
    """Put encoded messages into an empty batch of the SDK's, as its own `add_message` does with those it encoded."""
    inner: Any = getattr(batch, "_message", None)
    transport: Any = getattr(batch, "_amqp_transport", None)
    has_room = isinstance(inner, list) and len(inner) > 5 and isinstance(inner[5], list)
    if not has_room or not all(hasattr(batch, name) for name in BATCH_FIELDS):
        raise UnknownSdk
    if not callable(getattr(transport, "set_batch_envelope_properties", None)):
        raise UnknownSdk
    inner[5].extend(payloads)
    batch._count = len(payloads)
    batch._size += sum([len(payload) + BATCH_OVERHEAD_BYTES for payload in payloads])
    first = ReceivedMessage(payloads[0])
    transport.set_batch_envelope_properties(inner, first.message_id, first.session_id, first.partition_key)


def can_be_encoded(message: Sendable) -> bool:
    """Whether the SDK is able to write it down at all, whoever it is sent to."""
    scratch = ServiceBusMessageBatch(max_size_in_bytes=_ANY_SIZE)
    try:
        for one in outgoing(message):
            if one.payload is None:
                scratch.add_message(one.given)
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


def without_retries(sender: Any) -> None:
    """A ping is one attempt: the next follows soon enough, and is paid for, too."""
    config: Any = getattr(sender, "_config", None)
    policy: Any = getattr(sender, "_error_policy", None)
    if hasattr(config, "retry_total"):
        config.retry_total = 0
    if hasattr(policy, "total_retries"):
        policy.total_retries = 0


def max_message_bytes(sender: Any, batch: ServiceBusMessageBatch) -> int:
    """How large a single message may be on an open sender: at least as large as a batch, and much larger where a
    namespace takes large messages."""
    told: object = getattr(sender, "_max_message_size_on_link", 0)
    return max(batch.max_size_in_bytes, told if isinstance(told, int) else 0)


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
