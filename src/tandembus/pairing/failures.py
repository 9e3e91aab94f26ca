"""Which failures of a send speak against the primary (N5): one table, read from top to bottom.

A failure counts if the next sender would most likely meet it, too, and somebody else would not: the entity, its
broker or the way there is at fault. What the caller did wrong, or can only be told, does not count: moving to the
backlog would hide it, and bring it back later as a dead letter. Where it is the entity's own answer, it also proves
that the entity can be reached.
"""

from __future__ import annotations

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
from tandembus.pairing.sdk import is_of_the_token, token_status_in


class Verdict(Enum):
    COUNTS = "counts"
    ANSWERED = "answered"
    """The caller gets it, and it proves that the entity answers: it stops the timer, as a success does."""
    RAISED = "raised"
    """The caller gets it, and it says nothing about the entity."""
    UNCLEAR = "unclear"
    """An error of Python's own that the SDK met while sending: only the message tells whose fault it is."""


TABLE: Final[Mapping[type[BaseException], Verdict]] = {
    # The service works; it wants less. Its backlog would want less, too.
    ServiceBusServerBusyError: Verdict.ANSWERED,
    # A wrong key does not get better elsewhere. The SDK also reports an unknown entity in this way.
    ServiceBusAuthenticationError: Verdict.ANSWERED,
    ServiceBusAuthorizationError: Verdict.ANSWERED,
    MessagingEntityNotFoundError: Verdict.ANSWERED,
    MessageSizeExceededError: Verdict.ANSWERED,
    ServiceBusQuotaExceededError: Verdict.ANSWERED,
    # Whoever gives out tokens refused, not the service.
    ClientAuthenticationError: Verdict.RAISED,
    # Named, although the last row of the service's errors says the same: these are what an outage looks like.
    OperationTimeoutError: Verdict.COUNTS,
    ServiceBusConnectionError: Verdict.COUNTS,
    ServiceBusCommunicationError: Verdict.COUNTS,
    MessagingEntityDisabledError: Verdict.COUNTS,
    ServiceBusError: Verdict.COUNTS,
    # Sockets, names, TLS, time-outs.
    OSError: Verdict.COUNTS,
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
INTERNAL_ERROR: Final = 500


def verdict_on(error: BaseException) -> Verdict:
    """How a failed send is to be taken."""
    if type(error) is ServiceBusError:
        return _verdict_on_nameless(error)
    if (status := token_status_in(error)) is not None:
        return Verdict.ANSWERED if status < INTERNAL_ERROR else Verdict.COUNTS
    if _is_without_an_answer(error):
        return Verdict.RAISED
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


def _is_without_an_answer(error: BaseException) -> bool:
    """Whether the SDK found it out by itself: a list is larger than the link takes, a token was not answered."""
    if isinstance(error, MessageSizeExceededError):
        return _condition_of(error) is None
    return isinstance(error, ServiceBusAuthenticationError) and is_of_the_token(error)


def _verdict_on_nameless(error: ServiceBusError) -> Verdict:
    """The SDK uses its base class both for conditions without a class of their own and for whatever went wrong within
    itself; then the cause is inside."""
    if _condition_of(error) in BAD_ARGUMENT_CONDITIONS:
        return Verdict.ANSWERED
    inner = error.inner_exception
    if inner is None or isinstance(inner, OSError):
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
