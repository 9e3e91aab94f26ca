"""Which failures of a send speak against the primary (N5): one table, read from top to bottom.

A failure counts if the next sender would most likely meet it, too, and somebody else would not: the entity, its
broker or the way there is at fault. What the caller did wrong, or can only be told, does not count: moving to the
backlog would hide it, and bring it back later as a dead letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from enum import Enum
from typing import Final

from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus.exceptions import (
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from tandembus.pairing.errors import PairingError


class Verdict(Enum):
    COUNTS = "counts"
    RAISED = "raised"
    """The caller hears of it, and the entity is none the worse for it."""
    UNCLEAR = "unclear"
    """An error of Python's own that the SDK met while sending: only the message tells whose fault it is."""


TABLE: Final[Mapping[type[BaseException], Verdict]] = {
    # The service works; it wants less. Its backlog would want less, too.
    ServiceBusServerBusyError: Verdict.RAISED,
    # A wrong key does not get better elsewhere. The SDK also reports an unknown entity in this way.
    ServiceBusAuthenticationError: Verdict.RAISED,
    ServiceBusAuthorizationError: Verdict.RAISED,
    ClientAuthenticationError: Verdict.RAISED,
    MessagingEntityNotFoundError: Verdict.RAISED,
    MessageSizeExceededError: Verdict.RAISED,
    ServiceBusQuotaExceededError: Verdict.RAISED,
    # Named, although the last row of the service's errors says the same: these are what an outage looks like.
    OperationTimeoutError: Verdict.COUNTS,
    ServiceBusConnectionError: Verdict.COUNTS,
    ServiceBusCommunicationError: Verdict.COUNTS,
    MessagingEntityDisabledError: Verdict.COUNTS,
    ServiceBusError: Verdict.COUNTS,
    # Sockets, names, TLS. Until Python 3.11 asyncio has a time-out of its own.
    OSError: Verdict.COUNTS,
    asyncio.TimeoutError: Verdict.COUNTS,
    # Bad arguments, a sender that is closed, cancellation by the caller, the interpreter's end.
    Exception: Verdict.RAISED,
    BaseException: Verdict.RAISED,
}

BAD_ARGUMENT_CONDITIONS: Final = frozenset(
    (
        "amqp:decode-error",
        "amqp:invalid-field",
        "amqp:not-allowed",
        "amqp:not-implemented",
        "com.microsoft:argument-error",
        "com.microsoft:argument-out-of-range",
    )
)
"""The service's word for bad arguments: the SDK has no class of its own for them."""


def verdict_on(error: BaseException) -> Verdict:
    """How a failed send is to be taken."""
    if type(error) is ServiceBusError:
        return _verdict_on_nameless(error)
    return _row_of(error)


def is_the_messages_fault(error: BaseException) -> bool | None:
    """Whether nobody would take this message, wherever it is sent; None if only the message itself can tell."""
    if isinstance(error, ServiceBusError) and _condition_of(error) in BAD_ARGUMENT_CONDITIONS:
        return True
    if type(error) is ServiceBusError and _verdict_on_nameless(error) is Verdict.UNCLEAR:
        return None
    return isinstance(error, (MessageSizeExceededError, PairingError, TypeError, ValueError))


def _row_of(error: BaseException) -> Verdict:
    for kind, verdict in TABLE.items():
        if isinstance(error, kind):
            return verdict
    raise AssertionError("BaseException is in the table")


def _verdict_on_nameless(error: ServiceBusError) -> Verdict:
    """The SDK uses its base class both for conditions without a class of their own and for whatever went wrong within
    itself; then the cause is inside."""
    if _condition_of(error) in BAD_ARGUMENT_CONDITIONS:
        return Verdict.RAISED
    inner = error.inner_exception
    if inner is None or isinstance(inner, (OSError, asyncio.TimeoutError)):
        return Verdict.COUNTS
    if isinstance(inner, ClientAuthenticationError):
        return Verdict.RAISED
    return (
        Verdict.UNCLEAR if isinstance(inner, (ArithmeticError, LookupError, TypeError, ValueError)) else Verdict.COUNTS
    )


def _condition_of(error: ServiceBusError) -> str | None:
    # Private, and there is no other way: should it go, such an error counts like any other of the service's.
    condition: object = getattr(error, "_condition", None)
    return condition if isinstance(condition, str) else None
