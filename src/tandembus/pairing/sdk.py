"""The few places where pairing needs more of the SDK than it promises. Should one of them be gone, it does without;
except for the bytes of messages in a batch, which nothing can stand in for: `UnknownSdk` says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import (
    MessagingEntityNotFoundError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)

from tandembus.pairing.batch import PairedMessageBatch
from tandembus.pairing.sdk_payloads import UnknownSdk
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
_ANY_SIZE: Final = 1 << 40
NOT_FOUND: Final = 404
OF_ONE_LINK: Final = frozenset(("AMQPLinkError", "AMQPSessionError", "MessageException"))
"""What went wrong below the SDK's senders, where it is no matter of the connection."""
SYPHON_LINK: Final = {b"tandembus:purpose": "syphon"}


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


def marked_as_syphon(sender: Any) -> None:
    """Have a sender that is not open yet say on its link what it is for (N13), as the links of `tandembus syphon` do: a
    tandembus primary counts it as the outage's, every other service ignores it."""
    transport: Any = getattr(sender, "_amqp_transport", None)
    found = [name for name in ("create_send_client_async", "create_send_client") if hasattr(transport, name)]
    if found:
        made = {name: staticmethod(partial(getattr(transport, name), link_properties=SYPHON_LINK)) for name in found}
        sender._amqp_transport = type(transport.__name__, (transport,), made)


def not_found_in(error: BaseException) -> str | None:
    """What the service said, if there is no such entity. It is asked for a token first, and says so there already: the
    SDK makes an authentication error of it."""
    refusal: Any = getattr(error, "inner_exception", None)
    if isinstance(error, MessagingEntityNotFoundError) or getattr(refusal, "status_code", None) != NOT_FOUND:
        return None
    description: object = getattr(refusal, "status_description", None)
    return description.decode("utf-8", "replace") if isinstance(description, bytes) else str(description or error)


def is_without_connection(error: BaseException) -> bool:
    """Whether there was no connection, or it was lost. The SDK uses the same class where the service detaches one link
    by force, as it does when it moves an entity: that says nothing about other entities."""
    if not isinstance(error, (ServiceBusConnectionError, ServiceBusCommunicationError)):
        return False
    kinds = {kind.__name__ for kind in type(error.inner_exception).__mro__}
    condition: object = getattr(error, "_condition", None)
    return kinds.isdisjoint(OF_ONE_LINK) and not str(condition).startswith("amqp:link:")
