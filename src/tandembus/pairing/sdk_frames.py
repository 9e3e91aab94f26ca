"""What stands in the frames of the SDK's links, without any waiting: both forms of the syphon read them alike."""

from __future__ import annotations

import select
import uuid
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from io import BytesIO
from typing import Any, Final, final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusConnectionError, ServiceBusError

from tandembus.client import OutgoingMessage
from tandembus.pairing.sdk_payloads import BATCH_OVERHEAD_BYTES, UnknownSdk, fill

DELIVERY_ID: Final = 1
DELIVERY_TAG: Final = 2
MORE: Final = 5
ABORTED: Final = 9
PAYLOAD: Final = 11
"""Places in transfer frames."""
LOCK_LOST: Final = "com.microsoft:message-lock-lost"
FRAME_HEADER_BYTES: Final = 8
ID_MASK: Final = 0xFFFFFFFF
HUNG_UP: Final = getattr(select, "POLLRDHUP", 0)
"""Beside what is always told: that the connection was reset, or closed on both sides."""


@final
class Arrival:
    """A message that came on a link."""

    __slots__ = ("delivery_id", "payload", "tag")

    def __init__(self, delivery_id: int, tag: bytes, payload: bytes) -> None:
        self.delivery_id: Final = delivery_id
        self.tag: Final = tag
        self.payload: Final = payload

    @property
    def lock_token(self) -> uuid.UUID:
        return uuid.UUID(bytes_le=self.tag)


@final
class Parts:
    """Puts the frames of a message together. Frames that do not follow each other are never made one message: from then
    on nothing is taken from the link any more."""

    def __init__(self) -> None:
        self._parts: Final = bytearray()
        self._delivery_id: int | None = None
        """Of the message whose frames are coming; None between two messages."""
        self._tag = b""
        self._is_broken = False

    def add(self, frame: Sequence[Any]) -> Arrival | None:
        """The message, with its last frame."""
        delivery_id = self._follow(frame)
        self._parts.extend(frame[PAYLOAD] or b"")
        if frame[MORE] and not frame[ABORTED]:
            return None
        payload = bytes(self._parts)
        self._parts.clear()
        self._delivery_id = None
        return None if frame[ABORTED] else Arrival(delivery_id, self._tag, payload)

    def _follow(self, frame: Sequence[Any]) -> int:
        """Which message the frame is of: it begins one, or goes on with the one that began."""
        told, begun = frame[DELIVERY_ID], self._delivery_id
        if begun is None and told is not None and not self._is_broken:
            self._delivery_id, self._tag = int(told), bytes(frame[DELIVERY_TAG])
            return self._delivery_id
        if begun is None or self._is_broken or (told is not None and told != begun):
            self._is_broken = True
            raise ServiceBusConnectionError(message="The frames of a message came out of order.")
        return begun


@final
class Confirmations:
    """What the service says to messages that are settled together."""

    def __init__(self, delivery_ids: Iterable[int], state: Any) -> None:
        self._wanted: Final = type(state).__name__.lower()
        self._left: Final = set(delivery_ids)
        self._lost: Final[set[int]] = set()
        self._error: ServiceBusError | None = None

    def hear(self, frame: Sequence[Any]) -> None:
        """A disposition frame. The service's range is not believed further than what is waited for."""
        is_receiver, first, last, is_settled, outcome = frame[:5]
        if is_receiver or not is_settled:
            return
        span = (first if last is None else last) - first & ID_MASK
        for delivery_id in [each for each in self._left if each - first & ID_MASK <= span]:
            self._left.discard(delivery_id)
            refusal = _refusal_in(outcome, self._wanted)
            if isinstance(refusal, MessageLockLostError):
                self._lost.add(delivery_id)
            else:
                self._error = self._error or refusal

    def are_complete(self) -> bool:
        return not self._left

    def lost(self) -> set[int]:
        """Those that were not ours any more; raises if others were refused for another reason."""
        if self._error is not None:
            raise self._error
        return self._lost


def _refusal_in(outcome: Any, wanted: str) -> ServiceBusError | None:
    """None if the service did what it was asked. An error in its answer is a refusal, also if rejecting was asked."""
    answers = outcome if isinstance(outcome, dict) else {}
    found = answers.get("rejected")
    error = found[0] if found else None
    if error:
        condition = _text(error[0])
        description = _text(error[1]) if len(error) > 1 else ""
        if condition == LOCK_LOST:
            return MessageLockLostError(message=description)
        return ServiceBusError(description, condition=condition)
    if wanted in answers:
        return None
    return MessageLockLostError(message="The service did not confirm the settlement.")


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


def is_frame_there(connection: Any) -> bool:
    """Whether the next frame can be read at once, by us. False wherever one cannot tell: it is only about speed."""
    transport: Any = getattr(connection, "_transport", None)
    arrived = getattr(getattr(transport, "reader", None), "_buffer", None)
    begun = getattr(transport, "_read_buffer", None)
    if not isinstance(arrived, bytearray) or not isinstance(begun, BytesIO) or len(arrived) < FRAME_HEADER_BYTES:
        return False
    is_free = begun.tell() == begun.getbuffer().nbytes and not transport.socket_lock.locked()
    return is_free and int.from_bytes(arrived[:4], "big") <= len(arrived)


def has_hung_up(connection: Any) -> bool:
    """Whether the other side has ended the connection, which the SDK finds out when it reads the next time. False where
    the system cannot tell."""
    transport: Any = getattr(connection, "_transport", None)
    writer = getattr(transport, "writer", None)
    sock: Any = getattr(transport, "sock", None) if writer is None else writer.get_extra_info("socket")
    try:
        if sock.fileno() < 0:
            return True
        watch = select.poll()
        watch.register(sock.fileno(), HUNG_UP)
        return bool(watch.poll(0))
    except (AttributeError, OSError, ValueError):
        return False


def accepted() -> Any:
    return _outcome("Accepted")


def released() -> Any:
    return _outcome("Released")


def abandoned(properties: Mapping[str, object] | None = None) -> Any:
    """`properties` are set on the message."""
    return _outcome("Modified", delivery_failed=True, undeliverable_here=False, message_annotations=properties)


def deferred() -> Any:
    return _outcome("Modified", delivery_failed=True, undeliverable_here=True)


def dead_lettered(reason: str, description: str) -> Any:
    info = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
    try:
        from azure.servicebus._pyamqp.error import AMQPError
    except ImportError:
        raise UnknownSdk from None
    error = AMQPError(condition=b"com.microsoft:dead-letter", description=description, info=info)
    return _outcome("Rejected", error=error)


def _outcome(name: str, **fields: Any) -> Any:
    try:
        from azure.servicebus._pyamqp import outcomes

        return getattr(outcomes, name)(**fields)
    except (ImportError, AttributeError):
        raise UnknownSdk from None


def check_sdk() -> None:
    """Raises `UnknownSdk` unless the SDK has all that settling and sending need beside a link."""
    for make in (accepted, released, abandoned, deferred, partial(dead_lettered, "", "")):
        make()
    payload = OutgoingMessage(b"").encode()
    fill(ServiceBusMessageBatch(max_size_in_bytes=len(payload) + BATCH_OVERHEAD_BYTES), [payload])
