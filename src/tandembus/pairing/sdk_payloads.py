"""Messages as bytes through the SDK's receivers and senders.

The SDK decodes what it receives and forgets types on the way: a string in a body becomes binary, a timestamp a number.
What is to come home byte for byte must not be decoded and encoded again, so the syphon listens in where the bytes
arrive, and sends them in batches that it fills itself. The SDK promises neither of these places; should one of them be
gone in another version, that is said clearly, and nothing is sent that is not what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

from azure.servicebus import ServiceBusMessageBatch

from tandembus.client import ReceivedMessage
from tandembus.pairing.errors import PairingError

LINK_CALLS: Final = (
    "_incoming_disposition",
    "_incoming_flow",
    "_incoming_transfer",
    "flow",
    "get_state",
    "send_disposition",
)
LINK_FIELDS: Final = ("_error", "_is_closed", "_received_delivery_tags", "current_link_credit", "delivery_count")
BATCH_FIELDS: Final = ("_amqp_transport", "_count", "_size")
WORK: Final = ("do_work_async", "do_work")
"""Their rounds of work, of both forms."""
BY_TOKEN: Final = ("_renew_locks", "_settle_message_via_mgmt_link")
REQUESTS: Final = ("mgmt_client_request_async", "mgmt_client_request")
"""What the SDK's transports ask a management node with."""
OK: Final = 200
BATCH_OVERHEAD_BYTES: Final = 8
"""Around each message of a batch, as the SDK reckons."""
_log: Final = logging.getLogger("tandembus.pairing")


class UnknownSdk(PairingError):
    """This version of azure-servicebus does not show the bytes of messages: use `tandembus syphon` in place of
    `enable_syphon`, and lists in place of batches."""

    def __init__(self) -> None:
        super().__init__(
            "this version of azure-servicebus does not show messages as bytes, without which some would not come home "
            "as they were: run `tandembus syphon` in place of enable_syphon, and send lists in place of batches"
        )


def link_of(receiver: Any) -> Any:
    """The link of an open receiver, with all that is needed to receive and settle on it."""
    handler: Any = getattr(receiver, "_handler", None)
    link: Any = getattr(handler, "_link", None)
    connection: Any = getattr(handler, "_connection", None)
    shows_all = (
        hasattr(receiver, "_running")
        and any(_calls(handler, name) for name in WORK)
        and _calls(connection, "listen")
        and all(_calls(link, name) for name in LINK_CALLS)
        and all(hasattr(link, name) for name in LINK_FIELDS)
        and isinstance(link._received_delivery_tags, set)
    )
    if not shows_all:
        raise UnknownSdk
    return link


def _calls(found: object, name: str) -> bool:
    return callable(getattr(found, name, None))


def translated(receiver: Any, error: Exception) -> Exception:
    """What went wrong below the SDK's receivers, in the words that they use themselves."""
    translate: Any = getattr(getattr(receiver, "_amqp_transport", None), "create_servicebus_exception", None)
    if isinstance(error, PairingError) or translate is None:
        return error
    known: Exception = translate(_log, error)
    return known


def show_payloads(receiver: Any) -> None:
    """Have its answers be the bytes of messages, where they come through the management link."""
    transport: Any = getattr(receiver, "_amqp_transport", None)
    found = [name for name in REQUESTS if _calls(transport, name)]
    if not found or not all(_calls(receiver, name) for name in BY_TOKEN):
        raise UnknownSdk
    asking = {name: staticmethod(partial(_ask, getattr(transport, name))) for name in found}
    receiver._amqp_transport = type(transport.__name__, (transport,), asking)


def _ask(request: Callable[..., Any], *arguments: Any, callback: Callable[..., Any], **named: Any) -> Any:
    return request(*arguments, callback=partial(_read_answer, callback), **named)


def _read_answer(read: Callable[..., Any], status: Any, answer: Any, *arguments: Any, **named: Any) -> Any:
    """The SDK is not asked to read messages: one that it cannot read would keep it from all others for ever."""
    body: Any = getattr(answer, "value", None)
    entries: Any = body.get(b"messages") if status == OK and isinstance(body, dict) else None
    if isinstance(entries, list):
        return [Shown(bytes(entry[b"message"]), entry.get(b"lock-token")) for entry in entries]
    return read(status, answer, *arguments, **named)


class Shown:
    """A message that came through the management link: its bytes, and what it is locked by."""

    application_properties: Final = None
    raw_amqp_message: Final = SimpleNamespace(annotations=None)
    """What the SDK looks for where its calls are traced."""

    __slots__ = ("lock_token", "payload")

    def __init__(self, payload: bytes, lock_token: UUID | None) -> None:
        self.payload: Final = payload
        self.lock_token: Final = lock_token


def shown(messages: Sequence[object]) -> list[Shown]:
    """What a receiver answered that was made to show payloads."""
    found = [message for message in messages if isinstance(message, Shown)]
    if len(found) != len(messages):
        raise UnknownSdk
    return found


def fill(batch: ServiceBusMessageBatch, payloads: Sequence[bytes]) -> None:
    """Put encoded messages into an empty batch of the SDK's, as its own `add_message` does with those it encoded."""
    inner: Any = getattr(batch, "_message", None)
    transport: Any = getattr(batch, "_amqp_transport", None)
    has_room = isinstance(inner, list) and len(inner) > 5 and isinstance(inner[5], list)
    if not has_room or not all(hasattr(batch, name) for name in BATCH_FIELDS):
        raise UnknownSdk
    if not _calls(transport, "set_batch_envelope_properties"):
        raise UnknownSdk
    inner[5].extend(payloads)
    batch._count = len(payloads)
    batch._size += sum([len(payload) + BATCH_OVERHEAD_BYTES for payload in payloads])
    first = ReceivedMessage(payloads[0])
    transport.set_batch_envelope_properties(inner, first.message_id, first.session_id, first.partition_key)
